ogspr bench kernels --out results/bench-dense/kernels-dense-bf16.csv
