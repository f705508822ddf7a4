ogspr bench update --modes graph --precisions bf16 --learners 1 --batch-sizes 256 --capacities 100000 --updates 200 --out results/bench-versions/0.1.csv
