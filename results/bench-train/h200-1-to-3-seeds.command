ogspr bench train dmc:cheetah-run --seeds 1 2 3 --warm-up 2000 --out results/bench-train/h200-1-to-3-seeds.csv
