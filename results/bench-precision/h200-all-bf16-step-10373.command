ogspr bench precision runs/cheetah-run/seed-3 --updates 32 --mode eager --out results/bench-precision/h200-all-bf16-step-10373.csv
