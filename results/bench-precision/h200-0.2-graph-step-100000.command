ogspr bench precision runs/walker-walk/seed-1 --updates 32 --out results/bench-precision/h200-0.2-graph-step-100000.csv
