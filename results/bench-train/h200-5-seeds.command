ogspr bench train dmc:cheetah-run --seeds 5 --warm-up 1500 --out results/bench-train/h200-5-seeds.csv
