ogspr bench precision runs/cheetah-run-fp32/seed-1 --updates 32 --out results/bench-precision/h200-graph-step-50000.csv
