"""What probing found: a row for each predictor, and what the rows of a method come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ogspr.analysis.probing import TITLES, paper_losses, run_means
from ogspr.analysis.statistics import Estimate, bootstrap_interval, mean
from ogspr.probe.heads import HeadTraining
from ogspr.probe.probing import Loss
from ogspr.records.files import write_csv

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
    method: str  # the paper's name of the preset, and everything that was changed in it
    seed: int
    collector: str  # the method of the run whose policy played
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
    summaries, paper = [], paper_losses()
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        norms = run_means((row.run, row.loss, row.found.held_out) for row in own)
        shares = run_means((row.run, row.loss, row.found.per_dimension) for row in own)
        summaries += [
            Summary(
                method,
                loss,
                runs=len(norms[loss]),
                squared_norm=bootstrap_interval(mean, norms[loss]),
                per_dimension=bootstrap_interval(mean, shares[loss]),
                paper=paper.get((own[0].task, method, loss)),
            )
            for loss in TITLES
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
