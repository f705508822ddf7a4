ogspr bench random --episodes 100 --out results/bench-random/cpu.csv
