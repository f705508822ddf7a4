ogspr bench train dmc:cheetah-run --seeds 1 --warm-up 5000 --out results/bench-train/h200-1-seed.csv
