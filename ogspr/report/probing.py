"""Table 7 of the paper, from the csv files that `ogspr probe` has written."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from ogspr.analysis.grid import PAPER_NAMES, PAPER_SEEDS
from ogspr.analysis.statistics import bootstrap_interval, mean
from ogspr.reference import read_table
from ogspr.report.table import NOTHING, Cell, Column, Table, number

_NEEDED = {"task", "method", "seed", "collector", "loss", "value_per_dimension", "run"}
_LOSSES = {"state": "state from h", "next_state": "next state from z"}
_DIGITS = 3


@dataclass(frozen=True)
class ProbeLoss:
    """One predictor."""

    task: str
    method: str  # as the paper calls it
    loss: str
    run: str
    value: float


def find_losses(paths: Iterable[Path]) -> list[ProbeLoss]:
    """From all csv files below `paths` that are of this kind; none is counted twice."""
    files = dict.fromkeys(file.resolve() for path in paths for file in _csv_files(path))
    return [loss for file in files for loss in _losses_in(file)]


def probing_table(losses: Sequence[ProbeLoss]) -> Table | None:
    """For each run the mean over collectors, of these the mean over seeds; None where there are none."""
    if not losses:
        return None
    ours = [name for name in PAPER_NAMES.values() if any(found.method == name for found in losses)]
    ours += sorted({found.method for found in losses} - set(ours))
    published = {
        (f"dmc:{row['task']}", row["method"], row["loss"]): row for row in read_table("paper/probing.csv")
    }
    paper = list(dict.fromkeys(method for _, method, _ in published))
    tasks = sorted({found.task for found in losses})
    rows = [
        (
            Cell(f"{task.partition(':')[2]}, {title}"),
            *(
                _our_cell([f for f in losses if (f.task, f.method, f.loss) == (task, name, loss)])
                for name in ours
            ),
            *(_paper_cell(published.get((task, method, loss))) for method in paper),
        )
        for task in tasks
        for loss, title in _LOSSES.items()
    ]
    return Table(
        name="probing",
        title="Linear probing (Table 7)",
        note="Squared error of a linear predictor on held-out episodes, a dimension of the normalised state; "
        "mean over collectors and seeds [95 % bootstrap interval]. The paper does not say whether its "
        "numbers are sums over dimensions; their size suggests that they are means.",
        columns=(
            Column("task and predictor"),
            *(Column(name, "ours") for name in ours),
            *(Column(name, "paper") for name in paper),
        ),
        rows=tuple(rows),
    )


def _csv_files(path: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(path):
        if "config.json" in files:  # a run: none of its tables is of this kind
            folders.clear()
            continue
        folders.sort()
        yield from (Path(place) / name for name in sorted(files) if name.endswith(".csv"))


def _losses_in(path: Path) -> list[ProbeLoss]:
    """Nothing where it is a csv file of another kind; rows that are damaged are left out."""
    try:
        with path.open(encoding="utf-8", newline="", errors="replace") as file:
            reader = csv.DictReader(file)
            if not set(reader.fieldnames or ()) >= _NEEDED:
                return []
            return [loss for row in reader if (loss := _loss(row)) is not None]
    except (OSError, csv.Error):
        return []


def _loss(row: dict[str, str]) -> ProbeLoss | None:
    try:
        value = float(row["value_per_dimension"])
    except (TypeError, ValueError):
        return None
    if not np.isfinite(value) or row["loss"] not in _LOSSES:
        return None
    method = PAPER_NAMES.get(row["method"], row["method"])
    return ProbeLoss(row["task"], method, row["loss"], row["run"], value)


def _our_cell(losses: Sequence[ProbeLoss]) -> Cell:
    by_run: dict[str, list[float]] = {}
    for found in losses:
        by_run.setdefault(found.run, []).append(found.value)
    if not by_run:
        return Cell(NOTHING)
    means = np.array([[fmean(values)] for values in by_run.values()])
    incomplete = len(means) < PAPER_SEEDS
    note = f"{len(means)} of {PAPER_SEEDS} seeds" if incomplete else ""
    if len(means) == 1:
        return number(float(means[0, 0]), digits=_DIGITS, note=note, incomplete=incomplete)
    estimate = bootstrap_interval(mean, means)
    return number(
        estimate.value, estimate.low, estimate.high, digits=_DIGITS, note=note, incomplete=incomplete
    )


def _paper_cell(row: dict[str, str] | None) -> Cell:
    if row is None:
        return Cell(NOTHING)
    return number(*(float(row[name]) for name in ("value", "ci_low", "ci_high")), digits=_DIGITS)
