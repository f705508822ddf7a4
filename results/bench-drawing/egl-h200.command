ogspr bench env dmc:cheetah-run --steps 200 --rounds 5 --out results/bench-drawing/egl-h200.csv
