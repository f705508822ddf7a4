"""Measurements of ogspr, run from a checkout: `python -m benchmarks --help`. No part of the package."""
