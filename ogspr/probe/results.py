"""What probing found: a row for each predictor, and what the rows of a method come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from ogspr.analysis.grid import PAPER_NAMES
from ogspr.analysis.statistics import Estimate, bootstrap_interval, mean
from ogspr.probe.heads import HeadTraining
from ogspr.probe.probing import NEXT_STATE, STATE, Loss
from ogspr.records.files import write_csv
from ogspr.reference import read_table
from ogspr.types import Float64Array

SUM = "sum"  # of both losses
_COLUMNS = (
    "task",
    "method",
    "seed",
    "collector",
    "collector_seed",
    "loss",
    "value",
    "value_per_dimension",
    "training_value",
    "dimensions",
    "agent_steps",
    "collector_score",
    "policy",
    "episodes",
    "updates",
    "batch_size",
    "learning_rate",
    "clip_norm",
    "probe_seed",
    "run",
)


@dataclass(frozen=True)
class ProbeRow:
    """One predictor: of one run's representation, on episodes that one policy has played."""

    task: str
    method: str  # the preset of the run
    seed: int
    collector: str  # the preset of the run whose policy played
    collector_seed: int | None  # None: its file does not say
    loss: str
    found: Loss
    agent_steps: int  # of training behind the representation
    collector_score: float  # mean of the episodes
    run: Path


@dataclass(frozen=True)
class Summary:
    """One method and one loss: of each run the mean over collectors, of these the mean over seeds."""

    method: str
    loss: str
    runs: int
    squared_norm: Estimate
    per_dimension: Estimate
    paper: Estimate | None


def summarise(rows: Sequence[ProbeRow]) -> list[Summary]:
    """Methods in the order of the rows; for each state, next state and their sum."""
    summaries = []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        norms = _run_means(own, lambda found: found.held_out)
        shares = _run_means(own, lambda found: found.per_dimension)
        summaries += [
            Summary(
                method,
                loss,
                runs=len(norms[loss]),
                squared_norm=bootstrap_interval(mean, norms[loss]),
                per_dimension=bootstrap_interval(mean, shares[loss]),
                paper=_paper(own[0].task, method, loss),
            )
            for loss in (STATE, NEXT_STATE, SUM)
        ]
    return summaries


def write_rows(
    path: Path, rows: Sequence[ProbeRow], training: HeadTraining, *, episodes: int, seed: int, policy: str
) -> None:
    """Each row with all that decides its numbers."""
    settings = (episodes, training.updates, training.batch_size, training.learning_rate, training.clip_norm)
    cells = [
        (
            row.task,
            row.method,
            row.seed,
            row.collector,
            "" if row.collector_seed is None else row.collector_seed,
            row.loss,
            row.found.held_out,
            row.found.per_dimension,
            row.found.training,
            row.found.dimensions,
            row.agent_steps,
            row.collector_score,
            policy,
            *settings,
            seed,
            row.run,
        )
        for row in rows
    ]
    write_csv(path, _COLUMNS, cells)


def _run_means(rows: Sequence[ProbeRow], number: Callable[[Loss], float]) -> dict[str, Float64Array]:
    """For each loss the runs' means over collectors: (runs, 1), as scores on one task."""
    values: dict[str, dict[Path, list[float]]] = {STATE: {}, NEXT_STATE: {}}
    for row in rows:
        values[row.loss].setdefault(row.run, []).append(number(row.found))
    means = {
        loss: np.array([[fmean(numbers)] for numbers in by_run.values()]) for loss, by_run in values.items()
    }
    return means | {SUM: means[STATE] + means[NEXT_STATE]}


def _paper(task: str, method: str, loss: str) -> Estimate | None:
    """The paper's number; None where it has none."""
    wanted = (task, PAPER_NAMES.get(method), loss)
    for row in read_table("paper/probing.csv"):
        if (f"dmc:{row['task']}", row["method"], row["loss"]) == wanted:
            return Estimate(*(float(row[name]) for name in ("value", "ci_low", "ci_high")))
    return None
