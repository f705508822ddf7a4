ogspr bench update --modes graph --precisions bf16 --learners 1 --batch-sizes 256 64 --updates 50 --out results/bench-sizes/h200.csv
