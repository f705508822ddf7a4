"""The paper's tables, filled with the user's runs and the paper's own numbers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ogspr.analysis.grid import PAPER_NAMES, PAPER_SEEDS, PAPER_STEPS, Entry, Grid, score_matrix
from ogspr.analysis.runs import FloatArray, cautions, plural, thousands
from ogspr.analysis.statistics import (
    bootstrap_interval,
    iqm_of_runs,
    iqm_of_tasks,
    mean,
    median,
    normalised,
    optimality_gap,
    probability_of_improvement,
)
from ogspr.reference import Published, paper_aggregates, paper_estimates
from ogspr.report.table import NOTHING, Cell, Column, Table, number

_RESAMPLES = 10_000
_METHODS = ("OG-SPR", "AnonMethod", "MR.Q", "DrQ-v2")
_ABLATIONS = tuple(name for name in PAPER_NAMES.values() if name not in _METHODS)


@dataclass(frozen=True)
class Metric:
    """Raw scores, or scores normalised by those of another method."""

    key: str  # in the paper's table of aggregates
    title: str
    normalisation: str | None
    digits: int


@dataclass(frozen=True)
class Benchmark:
    """A group of tables of the paper."""

    name: str  # of the files
    title: str
    numbers: tuple[int, int]  # of the tables: aggregates, single tasks
    suite: str
    key: str  # in the paper's table of aggregates
    metrics: tuple[Metric, ...]
    paper_methods: tuple[str, ...]
    belongs: Callable[[str], bool]  # which of the user's methods are shown


_RAW = Metric("raw", "score", None, 0)
_DRQV2 = Metric("drqv2-normalized", "DrQ-v2-normalised score", "drqv2", 2)
_HUMAN = Metric("human-normalized", "human-normalised score", "human", 2)
_SPR = Metric("spr-normalized", "SPR-normalised score", "spr", 2)

BENCHMARKS = (
    Benchmark(
        "main",
        "DeepMind Control",
        (1, 8),
        "dmc",
        "dmc",
        (_RAW, _DRQV2),
        ("DrQ-v2", "TD-MPC2", "DreamerV3", "MR.Q", "AnonMethod", "OG-SPR"),
        lambda method: method not in _ABLATIONS,
    ),
    Benchmark(
        "ablations",
        "Ablations on DeepMind Control",
        (2, 9),
        "dmc",
        "dmc",
        (_RAW, _DRQV2),
        ("OG-SPR", *_ABLATIONS),
        lambda method: method in (*_ABLATIONS, "OG-SPR"),
    ),
    Benchmark(
        "atari100k",
        "Atari100k",
        (3, 10),
        "atari",
        "atari100k",
        (_HUMAN, _SPR),
        ("SPR", "MR.Q", "AnonMethod", "OG-SPR"),
        lambda method: method not in _ABLATIONS,
    ),
)


def benchmark_tables(grid: Grid, at: int | None = None) -> list[Table]:
    """Aggregates and single tasks of every benchmark that has runs.

    Args:
        grid: The runs.
        at: The agent step at which ours are read; None: where the paper reads its own.
    """
    tables = []
    for benchmark in BENCHMARKS:
        methods = _methods(grid, benchmark)
        has_ablations = any(method in _ABLATIONS for method in methods)
        if methods and (benchmark.name != "ablations" or has_ablations):
            tables += [
                _aggregate_table(grid, benchmark, methods, at),
                _task_table(grid, benchmark, methods, at),
            ]
    return tables


def _methods(grid: Grid, benchmark: Benchmark) -> list[str]:
    return [
        method
        for method, tasks in grid.methods.items()
        if benchmark.belongs(method) and any(task.startswith(f"{benchmark.suite}:") for task in tasks)
    ]


def _task_table(grid: Grid, benchmark: Benchmark, methods: Sequence[str], at: int | None) -> Table:
    paper = {method: paper_estimates(method) for method in benchmark.paper_methods}
    tasks = _tasks(grid, benchmark, methods)
    rows = [
        (
            Cell(task.partition(":")[2]),
            *(_entry_cell(grid.entry(method, task, at)) for method in methods),
            *(_paper_cell(paper[method].get(task), 0) for method in benchmark.paper_methods),
        )
        for task in tasks
    ]
    return Table(
        name=f"{benchmark.name}-tasks",
        title=f"{benchmark.title}, task by task (Table {benchmark.numbers[1]})",
        note=f"Mean score over seeds [95 % bootstrap interval]. {_notes(grid, benchmark, at)}",
        columns=_columns("task", methods, benchmark.paper_methods),
        rows=tuple(rows),
    )


def _tasks(grid: Grid, benchmark: Benchmark, methods: Sequence[str]) -> list[str]:
    """Those of the paper, then others that were run."""
    paper = _paper_tasks(benchmark)
    ours = {task for method in methods for task in grid.methods[method]}
    return paper + sorted(t for t in ours if t.startswith(f"{benchmark.suite}:") and t not in paper)


def _paper_tasks(benchmark: Benchmark) -> list[str]:
    scores = paper_estimates(benchmark.paper_methods[0])
    return [task for task in scores if task.startswith(f"{benchmark.suite}:")]


def _entry_cell(entry: Entry | None) -> Cell:
    if entry is None:
        return Cell(NOTHING)
    return _estimated(mean, [entry.scores[:, None]], [entry], digits=0, note=entry.note)


def _paper_cell(published: Published | None, digits: int) -> Cell:
    if published is None:
        return Cell(NOTHING)
    return number(published.value, published.low, published.high, digits=digits)


def improvement_table(grid: Grid, at: int | None = None) -> Table | None:
    """How likely a run of one method beats one of another; None where no two have finished a common task."""
    rows = []
    for first, second in combinations(grid.methods, 2):
        rows += [
            (Cell(f"{first} beats {second}, {suite}"), cell)
            for suite in dict.fromkeys(task.partition(":")[0] for task in grid.methods[first])
            if (cell := _improvement(grid, first, second, suite, at)) is not None
        ]
    if not rows:
        return None
    return Table(
        name="improvement",
        title="Probability of improvement",
        note="Of two runs on a task that both methods have finished; ties count half.",
        columns=(Column("comparison"), Column("probability", "ours")),
        rows=tuple(rows),
    )


def _improvement(grid: Grid, first: str, second: str, suite: str, at: int | None) -> Cell | None:
    pairs = [
        (x, y)
        for task in grid.methods[first]
        if task.startswith(f"{suite}:")
        and (x := finished_entry(grid, first, task, at)) is not None
        and (y := finished_entry(grid, second, task, at)) is not None
    ]
    if not pairs:
        return None
    entries = [entry for pair in pairs for entry in pair]
    scores = [score_matrix([pair[side].scores for pair in pairs]) for side in (0, 1)]
    note = ", ".join(part for part in (plural(len(pairs), "task"), _seeds_note(entries)) if part)
    return _estimated(probability_of_improvement, scores, entries, digits=2, note=note)


def finished_entry(grid: Grid, method: str, task: str, at: int | None) -> Entry | None:
    """None where it has not come to the step at which it is read."""
    entry = grid.entry(method, task, at)
    return entry if entry is not None and entry.at_the_end else None


def _estimated(
    statistic: Callable[..., FloatArray],
    scores: Sequence[FloatArray],
    entries: Sequence[Entry],
    *,
    digits: int,
    note: str,
) -> Cell:
    """With an interval where every task has two runs at least: of one run, nothing is known about others."""
    low = high = None
    if min(len(entry.runs) for entry in entries) > 1:
        found = bootstrap_interval(statistic, *scores, resamples=_RESAMPLES, seed=0)
        low, high = found.low, found.high
    incomplete = not all(entry.complete for entry in entries)
    value = float(statistic(*scores))
    return number(value, low, high, digits=digits, note=note, incomplete=incomplete)


def _seeds_note(entries: Sequence[Entry]) -> str:
    if all(entry.complete for entry in entries):
        return ""
    counts = [len(entry.runs) for entry in entries]
    low, high = min(counts), max(counts)
    return f"{low if low == high else f'{low} to {high}'} of {PAPER_SEEDS} seeds a task"


# --- aggregates ---------------------------------------------------------------------------------

Statistic = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Aggregate:
    """One number for a whole benchmark."""

    title: str
    statistic: Statistic
    key: str | None = None  # in the paper's table of aggregates
    of_means: bool = True  # whether the means of tasks, which the paper gives, are enough to compute it


_STATISTICS: tuple[Aggregate, ...] = (
    Aggregate("mean", mean, key="mean"),
    Aggregate("IQM over task means, as in the paper", iqm_of_tasks, key="iqm"),
    Aggregate("IQM over runs and tasks, as in rliable", iqm_of_runs, of_means=False),
    Aggregate("median over task means", median),
)
_GAP = Aggregate("optimality gap", optimality_gap, of_means=False)


def _aggregate_table(grid: Grid, benchmark: Benchmark, methods: Sequence[str], at: int | None) -> Table:
    paper_tasks = _paper_tasks(benchmark)
    finished = [
        {task for task in paper_tasks if finished_entry(grid, method, task, at)} for method in methods
    ]
    begun = [tasks for tasks in finished if tasks]  # a method that is nowhere at its end decides nothing
    ready = [task for task in paper_tasks if begun and all(task in tasks for tasks in begun)]
    groups = [paper_tasks] if ready in ([], paper_tasks) else [paper_tasks, ready]
    rows = [
        row
        for tasks in groups
        for metric in benchmark.metrics
        for row in _metric_rows(grid, benchmark, methods, metric, tasks, at)
    ]
    return Table(
        name=benchmark.name,
        title=f"{benchmark.title}: aggregates (Table {benchmark.numbers[0]})",
        note=f"95 % stratified bootstrap intervals. {_notes(grid, benchmark, at)}",
        columns=_columns("aggregate", methods, benchmark.paper_methods),
        rows=tuple(rows),
    )


def _metric_rows(
    grid: Grid,
    benchmark: Benchmark,
    methods: Sequence[str],
    metric: Metric,
    tasks: Sequence[str],
    at: int | None,
) -> list[tuple[Cell, ...]]:
    statistics = (*_STATISTICS, _GAP) if metric.normalisation else _STATISTICS
    return [
        (
            Cell(f"{metric.title}, {aggregate.title}, {plural(len(tasks), 'task')}"),
            *(_our_aggregate(grid, method, metric, tasks, aggregate.statistic, at) for method in methods),
            *(
                _paper_aggregate(benchmark, method, metric, tasks, aggregate)
                for method in benchmark.paper_methods
            ),
        )
        for aggregate in statistics
    ]


def _paper_aggregate(
    benchmark: Benchmark, method: str, metric: Metric, tasks: Sequence[str], aggregate: Aggregate
) -> Cell:
    """As published, for all tasks; else from the paper's scores of single tasks, means over its seeds."""
    if aggregate.key is not None and len(tasks) == len(_paper_tasks(benchmark)):
        published = paper_aggregates()[benchmark.key, metric.key, aggregate.key].get(method)
        return _paper_cell(published, metric.digits)
    scores = paper_estimates(method)
    if not aggregate.of_means or any(task not in scores for task in tasks):
        return Cell(NOTHING)
    columns = [_in_units(metric, task, np.array([scores[task].value])) for task in tasks]
    return number(float(aggregate.statistic(np.stack(columns, axis=1))), digits=metric.digits)


def _our_aggregate(
    grid: Grid, method: str, metric: Metric, tasks: Sequence[str], statistic: Statistic, at: int | None
) -> Cell:
    entries = {task: entry for task in tasks if (entry := finished_entry(grid, method, task, at)) is not None}
    if len(entries) < len(tasks):
        return Cell(
            NOTHING, note=f"finished on {len(entries)} of {plural(len(tasks), 'task')}", incomplete=True
        )
    scores = score_matrix([_in_units(metric, task, entry.scores) for task, entry in entries.items()])
    found = list(entries.values())
    return _estimated(statistic, [scores], found, digits=metric.digits, note=_seeds_note(found))


def _in_units(metric: Metric, task: str, scores: FloatArray) -> FloatArray:
    return scores if metric.normalisation is None else normalised(metric.normalisation, task, scores)


def _columns(first: str, ours: Sequence[str], paper: Sequence[str]) -> tuple[Column, ...]:
    return (
        Column(first),
        *(Column(method, "ours") for method in ours),
        *(Column(method, "paper") for method in paper),
    )


def _notes(grid: Grid, benchmark: Benchmark, at: int | None) -> str:
    """Where scores are read, and what should not be compared without a thought."""
    runs = [run for run in grid.runs if run.suite == benchmark.suite]
    return " ".join([_steps_note(benchmark, at), *(f"Beware: {line}." for line in cautions(runs))])


def _steps_note(benchmark: Benchmark, at: int | None) -> str:
    theirs = PAPER_STEPS[benchmark.suite]
    if at is None or at == theirs:
        return f"Read at {thousands(theirs)} agent steps."
    return f"Ours at {thousands(at)} agent steps, the paper's at {thousands(theirs)}."
