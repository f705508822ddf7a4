"""Learning curves that the authors of other methods have published and that may be passed on."""

from __future__ import annotations

from functools import cache

import numpy as np

from ogspr.analysis.curves import Curve, curve_of
from ogspr.reference import read_table

_FRAMES_A_STEP = 2  # DeepMind Control with actions held for two frames


@cache
def published_curves() -> dict[str, dict[str, Curve]]:
    """By task, then by method."""
    runs: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for row in read_table("published/dmc_pixel_curves.csv"):
        methods = runs.setdefault(f"dmc:{row['task']}", {})
        scores = methods.setdefault(row["method"], {}).setdefault(row["run"], {})
        scores[int(row["env_steps"])] = float(row["score"])
    return {
        task: {method: _curve(list(found.values())) for method, found in methods.items()}
        for task, methods in runs.items()
    }


def _curve(runs: list[dict[int, float]]) -> Curve:
    """Over the steps at which all of the runs have a score."""
    steps = np.array(sorted(set.intersection(*(set(run) for run in runs))), np.int64)
    scores = np.array([[run[int(step)] for step in steps] for run in runs])
    return curve_of(steps, steps * _FRAMES_A_STEP, scores)
