ogspr bench train dmc:cheetah-run --warm-up 1500 --out results/bench-train/h200.csv
