ogspr bench update --modes graph --precisions bf16 --learners 1 5 --updates 50 --out results/bench-dense/dense-bf16-again.csv
