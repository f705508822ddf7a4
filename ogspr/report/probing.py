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

_PREDICTOR = ("task", "method", "seed", "collector", "collector_seed", "loss")
_SETTINGS = ("updates", "episodes", "batch_size", "policy", "probe_seed")
_NEEDED = {*_PREDICTOR, *_SETTINGS, "value_per_dimension"}
_LOSSES = {"state": "state from h", "next_state": "next state from z"}
_SUM = "sum of both"
_DIGITS = 3


@dataclass(frozen=True)
class ProbeLoss:
    """One predictor."""

    task: str
    method: str  # as the paper calls it
    seed: str
    collector: tuple[str, str]  # method and seed
    loss: str
    settings: tuple[str, ...]  # with which it was trained
    value: float


def find_losses(paths: Iterable[Path]) -> tuple[list[ProbeLoss], list[str]]:
    """From all csv files below `paths` that are of this kind, and a line for what was left out.

    A predictor counts once; numbers of probes with other settings are not mixed.
    """
    files = dict.fromkeys(file.resolve() for path in paths for file in _csv_files(path))
    found = [loss for file in files for loss in _losses_in(file)]
    warnings = []
    settings = sorted({loss.settings for loss in found}, key=_thoroughness, reverse=True)
    if len(settings) > 1:
        kept, *others = (", ".join(map(" ".join, zip(_SETTINGS, each, strict=True))) for each in settings)
        warnings.append(
            f"probes with different settings: shown are those with {kept}, not {'; '.join(others)}"
        )
        found = [loss for loss in found if loss.settings == settings[0]]
    unique = {(loss.task, loss.method, loss.seed, loss.collector, loss.loss): loss for loss in found}
    if len(unique) < len(found):
        warnings.append(
            f"{len(found) - len(unique)} losses of probing were found twice; the later ones count"
        )
    return list(unique.values()), warnings


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
            *(_our_cell([f for f in losses if (f.task, f.method) == (task, name)], kinds) for name in ours),
            *(_paper_cell([published.get((task, method, kind)) for kind in kinds]) for method in paper),
        )
        for task in tasks
        for title, kinds in _rows().items()
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
    if not np.isfinite(value) or row["loss"] not in _LOSSES or any(row[name] is None for name in _SETTINGS):
        return None
    return ProbeLoss(
        row["task"],
        PAPER_NAMES.get(row["method"], row["method"]),
        row["seed"],
        (row["collector"], row["collector_seed"]),
        row["loss"],
        tuple(row[name] for name in _SETTINGS),
        value,
    )


def _thoroughness(settings: tuple[str, ...]) -> tuple[int, ...]:
    """More updates first, then more episodes."""
    return tuple(int(text) if text.isdecimal() else 0 for text in settings)


def _rows() -> dict[str, tuple[str, ...]]:
    """Title of a row, and the losses that are added up in it."""
    return {title: (kind,) for kind, title in _LOSSES.items()} | {_SUM: tuple(_LOSSES)}


def _our_cell(losses: Sequence[ProbeLoss], kinds: Sequence[str]) -> Cell:
    """Of each run the mean over collectors, of these the mean over seeds."""
    by_seed: dict[str, list[float]] = {}
    for seed in dict.fromkeys(found.seed for found in losses):
        means = [[f.value for f in losses if (f.seed, f.loss) == (seed, kind)] for kind in kinds]
        if all(means):
            by_seed[seed] = [fmean(values) for values in means]
    if not by_seed:
        return Cell(NOTHING)
    values = np.array([[sum(parts)] for parts in by_seed.values()])
    incomplete = len(values) < PAPER_SEEDS
    note = f"{len(values)} of {PAPER_SEEDS} seeds" if incomplete else ""
    if len(values) == 1:
        return number(float(values[0, 0]), digits=_DIGITS, note=note, incomplete=incomplete)
    estimate = bootstrap_interval(mean, values)
    return number(
        estimate.value, estimate.low, estimate.high, digits=_DIGITS, note=note, incomplete=incomplete
    )


def _paper_cell(rows: Sequence[dict[str, str] | None]) -> Cell:
    """A single number with its interval; a sum without one: the paper's runs are not published."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return Cell(NOTHING)
    if len(known) > 1:
        return number(sum(float(row["value"]) for row in known), digits=_DIGITS)
    return number(*(float(known[0][name]) for name in ("value", "ci_low", "ci_high")), digits=_DIGITS)
