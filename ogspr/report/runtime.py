"""Table 5 of the paper: how many parameters a method has, and how long a run takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from ogspr.analysis.grid import PAPER_STEPS, Grid
from ogspr.analysis.runs import RunResult, nested, plural, read_columns
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.reference import read_table
from ogspr.report.table import NOTHING, Cell, Column, Table, number

_SECONDS_AN_HOUR = 3600.0
_PAPER_TASK = "dmc:cheetah-run"
_CLOCKS_AGREE = 5.0  # seconds


def runtime_table(grid: Grid) -> Table | None:
    """A row for each method, task and machine; None where nothing is known."""
    rows = [
        (Cell(f"{method}, {task.partition(':')[2]}, {machine}"), _parameters(runs), _hours(runs), *theirs)
        for method, tasks in grid.methods.items()
        for task, members in tasks.items()
        if task.startswith("dmc:")
        for machine, runs in _by_machine(members).items()
        if seconds_of(runs)
        for theirs in [_paper_cells(method if task == _PAPER_TASK else None)]
    ]
    if not rows:
        return None
    paper = [row["method"] for row in read_table("paper/runtime.csv")]
    rows += [
        (
            Cell(f"{method}, {_PAPER_TASK.partition(':')[2]}"),
            Cell(NOTHING),
            Cell(NOTHING),
            *_paper_cells(method),
        )
        for method in paper
        if method not in grid.methods
    ]
    return Table(
        name="runtime",
        title="Parameters and time (Table 5)",
        note="Hours for 500 000 agent steps with evaluation, as long as the measured steps take on average; "
        "steps before the first update are excluded. The paper's: cheetah-run on an RTX 4090.",
        columns=(
            Column("method, task, machine"),
            Column("parameters, millions", "ours"),
            Column("hours", "ours"),
            Column("parameters, millions", "paper"),
            Column("hours", "paper"),
        ),
        rows=tuple(rows),
    )


def seconds_of(runs: Iterable[RunResult]) -> list[float]:
    """Seconds a step, of the runs that know."""
    return [seconds for run in runs if (seconds := seconds_a_step(run)) is not None]


def seconds_a_step(run: RunResult) -> float | None:
    """From the rows of system.csv after the first updates; None where there are too few."""
    try:
        names, numbers = read_columns(RunFolder(run.folder).system_table)
    except UserError:
        return None
    if not set(names) >= {"agent_steps", "unix_time", "seconds"} or len(numbers) < 2:
        return None
    steps, clock, seconds = (
        numbers[:, names.index(name)] for name in ("agent_steps", "unix_time", "seconds")
    )
    random_steps = nested(run.options, "agent", "random_steps")
    # The first row with updates has the compilation in it.
    learning = steps[:-1] > (random_steps if type(random_steps) is int else 0)
    # `seconds` start again when a run is resumed, wall-clock time does not.
    same_process = np.abs(np.diff(clock) - np.diff(seconds)) < _CLOCKS_AGREE
    usable = learning & same_process & (np.diff(steps) > 0)
    if not usable.any():
        return None
    return float(np.diff(seconds)[usable].sum() / np.diff(steps)[usable].sum())


def _by_machine(runs: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    machines: dict[str, list[RunResult]] = {}
    for run in runs:
        gpu, cores = (nested(run.manifest, "settings", name) for name in ("gpu", "cores"))
        machines.setdefault(str(gpu or f"{cores or '?'} CPU cores"), []).append(run)
    return machines


def _hours(runs: Sequence[RunResult]) -> Cell:
    hours = [seconds * PAPER_STEPS["dmc"] / _SECONDS_AN_HOUR for seconds in seconds_of(runs)]
    seeds = sorted({str(found) for run in runs if (found := nested(run.manifest, "settings", "seeds"))})
    together = f"{' or '.join(seeds)} in one process" if seeds else "seeds per process unknown"
    return number(median(hours), digits=2, note=f"median of {plural(len(hours), 'run')}, {together}")


def _parameters(runs: Iterable[RunResult]) -> Cell:
    found = {nested(run.manifest, "settings", "parameters") for run in runs if _counted(run)}
    return number(min(found) / 1e6, digits=2) if found else Cell(NOTHING)


def _counted(run: RunResult) -> bool:
    return type(nested(run.manifest, "settings", "parameters")) is int


def _paper_cells(method: str | None) -> tuple[Cell, Cell]:
    for row in read_table("paper/runtime.csv"):
        if row["method"] == method:
            return (
                number(float(row["params_millions"]), digits=1),
                number(float(row["wall_clock_hours_rtx4090"]), digits=1),
            )
    return Cell(NOTHING), Cell(NOTHING)
