"""Table 5 of the paper: how many parameters a method has, and how long a run takes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import numpy as np

from ogspr.analysis.grid import PAPER_STEPS, Grid
from ogspr.analysis.runs import RunResult, read_columns
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.reference import read_table
from ogspr.report.table import NOTHING, Cell, Column, Table, number

_SECONDS_AN_HOUR = 3600.0


def runtime_table(grid: Grid) -> Table | None:
    """Hours for 500k agent steps, extrapolated from the steps with updates; None where nothing is known."""
    rows = []
    paper = {row["method"]: row for row in read_table("paper/runtime.csv")}
    for method, tasks in grid.methods.items():
        runs = [run for group in tasks.values() for run in group if run.suite == "dmc"]
        if runs:
            rows.append((Cell(method), _parameters(runs), _hours(runs), *_paper_cells(paper.pop(method, {}))))
    if not rows:
        return None
    rows += [
        (Cell(method), Cell(NOTHING), Cell(NOTHING), *_paper_cells(row)) for method, row in paper.items()
    ]
    return Table(
        name="runtime",
        title="Parameters and time (Table 5)",
        note="Hours for 500 000 agent steps with evaluation. The paper's: cheetah-run on an RTX 4090.",
        columns=(
            Column("method"),
            Column("parameters, millions", "ours"),
            Column("hours", "ours"),
            Column("parameters, millions", "paper"),
            Column("hours", "paper"),
        ),
        rows=tuple(rows),
    )


def seconds_a_step(run: RunResult) -> float | None:
    """From the rows of system.csv after the first updates; None where there are too few."""
    folder = RunFolder(run.folder)
    try:
        names, numbers = read_columns(folder.system_table)
    except UserError:
        return None
    if not {"agent_steps", "seconds"} <= set(names) or len(numbers) < 2:
        return None
    steps, seconds = (numbers[:, names.index(name)] for name in ("agent_steps", "seconds"))
    random_steps = run.options.get("agent", {}).get("random_steps", 0)
    # The clock starts anew when a run is resumed, and the first row with updates has the compilation in it.
    usable = (np.diff(seconds) > 0) & (np.diff(steps) > 0) & (steps[:-1] > random_steps)
    if not usable.any():
        return None
    # A mean: rows in which an evaluation goes on are slower, and belong to it.
    return float(np.diff(seconds)[usable].sum() / np.diff(steps)[usable].sum())


def _hours(runs: Iterable[RunResult]) -> Cell:
    rates = [(run, rate) for run in runs if (rate := seconds_a_step(run)) is not None]
    if not rates:
        return Cell(NOTHING)
    hours = [rate * PAPER_STEPS["dmc"] / _SECONDS_AN_HOUR for _, rate in rates]
    places = sorted({_where(run) for run, _ in rates})
    together = sorted({seeds for run, _ in rates if (seeds := run.manifest.get("settings", {}).get("seeds"))})
    shared = [f"with {' or '.join(map(str, together))} seeds in one process"] if together else []
    return number(median(hours), digits=2, note=", ".join([*places, *shared]))


def _where(run: RunResult) -> str:
    settings = run.manifest.get("settings", {})
    return str(settings.get("gpu") or f"{settings.get('cores', '?')} CPU cores")


def _parameters(runs: Iterable[RunResult]) -> Cell:
    found = {run.manifest.get("settings", {}).get("parameters") for run in runs} - {None}
    if not found:
        return Cell(NOTHING)
    low, high = min(found) / 1e6, max(found) / 1e6
    note = "" if low == high else f"up to {high:.2f}: tasks differ in their actions"
    return number(low, digits=2, note=note)


def _paper_cells(row: dict[str, str]) -> tuple[Cell, Cell]:
    if not row:
        return Cell(NOTHING), Cell(NOTHING)
    return (
        number(float(row["params_millions"]), digits=1),
        number(float(row["wall_clock_hours_rtx4090"]), digits=1),
    )
