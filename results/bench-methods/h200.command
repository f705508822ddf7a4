ogspr bench train dmc:cheetah-run --methods ogspr anonmethod mrq drqv2 --seeds 1 --warm-up 1500 --out results/bench-methods/h200.csv
