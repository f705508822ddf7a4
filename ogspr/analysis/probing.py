"""Losses of linear probes: of each run the mean over collectors, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from statistics import fmean

import numpy as np

from ogspr.analysis.statistics import Estimate
from ogspr.reference import read_table
from ogspr.types import Float64Array

STATE, NEXT_STATE = "state", "next_state"
SUM = "sum"  # of both losses
TITLES = {STATE: "state from h", NEXT_STATE: "next state from z", SUM: "sum of both"}


def run_means(losses: Iterable[tuple[Hashable, str, float]]) -> dict[str, Float64Array]:
    """Of (run, STATE or NEXT_STATE, value of one collector): each run's mean, (runs, 1) as scores on a task.

    SUM has those of the runs that have both.
    """
    values: dict[str, dict[Hashable, list[float]]] = {STATE: {}, NEXT_STATE: {}}
    for run, loss, value in losses:
        values[loss].setdefault(run, []).append(value)
    means = {
        loss: {run: fmean(numbers) for run, numbers in by_run.items()} for loss, by_run in values.items()
    }
    state, next_state = means[STATE], means[NEXT_STATE]
    means[SUM] = {run: state[run] + next_state[run] for run in state if run in next_state}
    return {loss: np.array([*by_run.values()], np.float64)[:, None] for loss, by_run in means.items()}


def paper_losses() -> dict[tuple[str, str, str], Estimate]:
    """Table 7 by task, method and loss; it has no sums."""
    return {
        (f"dmc:{row['task']}", row["method"], row["loss"]): Estimate(
            *(float(row[name]) for name in ("value", "ci_low", "ci_high"))
        )
        for row in read_table("paper/probing.csv")
    }
