"""Table 7 of the paper, from the csv files that `ogspr probe` has written."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ogspr.analysis.grid import PAPER_NAMES, PAPER_SEEDS
from ogspr.analysis.probing import NEXT_STATE, STATE, SUM, TITLES, paper_losses, run_means
from ogspr.analysis.runs import plural
from ogspr.analysis.statistics import Estimate, bootstrap_interval, mean
from ogspr.records.files import open_to_read
from ogspr.report.table import NOTHING, Cell, Column, Table, number
from ogspr.types import Float64Array

_PREDICTOR = ("task", "method", "seed", "collector", "collector_seed", "loss")
_SETTINGS = ("updates", "episodes", "batch_size", "policy", "probe_seed")
_NEEDED = {*_PREDICTOR, *_SETTINGS, "value_per_dimension"}
_DIGITS = 3
_PAPER_UPDATES = 100_000


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
    """From all csv files below `paths` that are of this kind, and a line for what was skipped.

    A predictor counts once; numbers of probes with other settings are not mixed.
    """
    files = dict.fromkeys(file.resolve() for path in paths for file in _csv_files(path))
    found: list[ProbeLoss] = []
    warnings = []
    for file in files:
        usable, damaged = _losses_in(file)
        found += usable
        if damaged:
            warnings.append(f"{file}: skipped {plural(damaged, 'unusable row')} of losses")
    settings = sorted({loss.settings for loss in found}, key=_thoroughness, reverse=True)
    if len(settings) > 1:
        kept, *others = (", ".join(map(" ".join, zip(_SETTINGS, each, strict=True))) for each in settings)
        warnings.append(f"probes have different settings: showing those with {kept}, not {'; '.join(others)}")
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
    paper = list(dict.fromkeys(method for _, method, _ in paper_losses()))
    rows = [
        row for task in sorted({found.task for found in losses}) for row in _rows(task, losses, ours, paper)
    ]
    return Table(
        name="probing",
        title="Linear probing (Table 7)",
        note="Squared error of a linear predictor on held-out episodes, a dimension of the normalised state; "
        f"mean over collectors and seeds [95 % bootstrap interval]; {_settings_note(losses[0])}. The paper "
        "does not say whether its numbers are sums over dimensions; their size suggests that they are means.",
        columns=(
            Column("task and predictor"),
            *(Column(name, "ours") for name in ours),
            *(Column(name, "paper") for name in paper),
        ),
        rows=tuple(rows),
    )


def _rows(
    task: str, losses: Sequence[ProbeLoss], ours: Sequence[str], paper: Sequence[str]
) -> list[tuple[Cell, ...]]:
    """A task's losses and their sum, one column for each of our methods and of the paper's."""
    means = [
        run_means((f.seed, f.loss, f.value) for f in losses if (f.task, f.method) == (task, name))
        for name in ours
    ]
    short = _is_short(losses[0])
    published = paper_losses()
    theirs = [
        {loss: found for (where, method, loss), found in published.items() if (where, method) == (task, name)}
        for name in paper
    ]
    return [
        (
            Cell(f"{task.partition(':')[2]}, {title}"),
            *(_our_cell(values[loss], short) for values in means),
            *(_paper_cell(found, loss) for found in theirs),
        )
        for loss, title in TITLES.items()
    ]


def _settings_note(loss: ProbeLoss) -> str:
    """With what predictors were trained: the same for all that are shown."""
    settings = dict(zip(_SETTINGS, loss.settings, strict=True))
    ours = f"{settings['updates']} updates on {settings['episodes']} episodes of each collector"
    return f"{ours}, the paper's {_PAPER_UPDATES} updates" if _is_short(loss) else ours


def _is_short(loss: ProbeLoss) -> bool:
    return _thoroughness(loss.settings)[0] < _PAPER_UPDATES


def _csv_files(path: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(path):
        if "config.json" in files:  # a run: none of its tables is of this kind
            folders.clear()
            continue
        folders.sort()
        yield from (Path(place) / name for name in sorted(files) if name.endswith(".csv"))


def _losses_in(path: Path) -> tuple[list[ProbeLoss], int]:
    """And how many rows are damaged; nothing where it is a csv file of another kind."""
    try:
        with io.TextIOWrapper(open_to_read(path), "utf-8", newline="", errors="replace") as file:
            reader = csv.DictReader(file)
            if not set(reader.fieldnames or ()) >= _NEEDED:
                return [], 0
            rows = [_loss(row) for row in reader]
    except (OSError, csv.Error):
        return [], 0
    usable = [loss for loss in rows if loss is not None]
    return usable, len(rows) - len(usable)


def _loss(row: dict[str, str]) -> ProbeLoss | None:
    try:
        value = float(row["value_per_dimension"])
    except (TypeError, ValueError):
        return None
    if (
        not np.isfinite(value)
        or row["loss"] not in (STATE, NEXT_STATE)
        or any(row[name] is None for name in _SETTINGS)
    ):
        return None
    return ProbeLoss(
        row["task"],
        PAPER_NAMES.get(row["method"], row["method"]),
        row["seed"],
        (PAPER_NAMES.get(row["collector"], row["collector"]), row["collector_seed"]),
        row["loss"],
        tuple(row[name] for name in _SETTINGS),
        value,
    )


def _thoroughness(settings: tuple[str, ...]) -> tuple[int, ...]:
    """More updates first, then more episodes."""
    return tuple(int(text) if text.isdecimal() else 0 for text in settings)


def _our_cell(values: Float64Array, short: bool) -> Cell:
    """The mean over seeds; `short`: of fewer updates than the paper's."""
    if not len(values):
        return Cell(NOTHING)
    incomplete = short or len(values) < PAPER_SEEDS
    note = f"{len(values)} of {PAPER_SEEDS} seeds" if len(values) < PAPER_SEEDS else ""
    if len(values) == 1:
        return number(float(values[0, 0]), digits=_DIGITS, note=note, incomplete=incomplete)
    estimate = bootstrap_interval(mean, values)
    return number(
        estimate.value, estimate.low, estimate.high, digits=_DIGITS, note=note, incomplete=incomplete
    )


def _paper_cell(published: dict[str, Estimate], loss: str) -> Cell:
    """A single number with its interval; a sum without one: the paper's runs are not published."""
    if loss in published:
        found = published[loss]
        return number(found.value, found.low, found.high, digits=_DIGITS)
    if loss == SUM and {STATE, NEXT_STATE} <= published.keys():
        return number(published[STATE].value + published[NEXT_STATE].value, digits=_DIGITS)
    return Cell(NOTHING)
