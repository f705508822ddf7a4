ogspr bench kernels --out results/bench-kernels/h200.csv
