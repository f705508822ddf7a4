ogspr bench update --updates 20
