"""Scores of runs as arrays, and what can be said about them. Numpy only."""
