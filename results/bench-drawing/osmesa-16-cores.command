MUJOCO_GL=osmesa LP_NUM_THREADS=1 ogspr bench env dmc:cheetah-run --steps 20 --rounds 5 --out results/bench-drawing/osmesa-16-cores.csv
