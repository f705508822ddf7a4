ogspr bench update --modes graph --precisions bf16 --learners 1 --batch-sizes 256 64 1024 --capacities 100000 500000 --updates 50 --out results/bench-memory/h200.csv
