ogspr bench sharing dmc:cheetah-run --out results/bench-sharing/h200.csv
