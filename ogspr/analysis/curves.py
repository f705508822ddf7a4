"""Learning curves with an interval over runs; and those that other authors have published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ogspr.analysis.runs import FloatArray, IntArray, RunResult
from ogspr.analysis.statistics import bootstrap_band, task_means
from ogspr.reference import read_table

_RESAMPLES = 2_000  # a curve has hundreds of points, and its band is looked at, not read off


@dataclass(frozen=True)
class Curve:
    """One method on one task, at every step at which any of its runs was evaluated."""

    agent_steps: IntArray  # (E,)
    frames: IntArray  # (E,)
    scores: FloatArray  # (runs, E); NaN: this run was not evaluated there
    mean: FloatArray  # (E,); NaN where a run is missing: it would be a mean of others than before
    low: FloatArray  # (E,) 95 % interval of the mean; NaN where there is one run only
    high: FloatArray  # (E,)


def curve(runs: Sequence[RunResult]) -> Curve:
    """All steps at which any of the runs was evaluated."""
    frames = {
        int(step): int(count)
        for run in runs
        for step, count in zip(run.evaluations.agent_steps, run.evaluations.frames, strict=True)
    }
    steps = np.array(sorted(frames), np.int64)
    scores = np.full((len(runs), len(steps)), np.nan)
    for row, run in zip(scores, runs, strict=True):
        row[np.searchsorted(steps, run.evaluations.agent_steps)] = run.evaluations.means
    return curve_of(steps, np.array([frames[int(step)] for step in steps], np.int64), scores)


def curve_of(agent_steps: IntArray, frames: IntArray, scores: FloatArray) -> Curve:
    """Mean and interval of scores (runs, E), step by step; each step has a run at least."""
    band = bootstrap_band(task_means, scores, resamples=_RESAMPLES)
    missing = np.isnan(scores).any(axis=0)
    mean = np.where(missing, np.nan, band.value)
    low, high = (np.where(missing | (len(scores) < 2), np.nan, end) for end in (band.low, band.high))
    return Curve(agent_steps, frames, scores, mean, low, high)


# --- curves of other methods that may be passed on -----------------------------------------------------


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
