"""The paper's tables, filled with the user's runs and the paper's own numbers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ogspr.analysis.grid import PAPER_NAMES, PAPER_STEPS, Grid, Square, score_matrix
from ogspr.analysis.normalisation import normalised
from ogspr.analysis.runs import FloatArray
from ogspr.analysis.statistics import (
    bootstrap_interval,
    iqm_of_runs,
    iqm_of_tasks,
    mean,
    median,
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
    """Scores as they are, or in units of somebody else's."""

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
            *(_square_cell(grid.square(method, task, at)) for method in methods),
            *(_paper_cell(paper[method].get(task), 0) for method in benchmark.paper_methods),
        )
        for task in tasks
    ]
    return Table(
        name=f"{benchmark.name}-tasks",
        title=f"{benchmark.title}, task by task (Table {benchmark.numbers[1]})",
        note=f"Mean score over seeds [95 % bootstrap interval]. {_steps_note(benchmark, at)}",
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


def _square_cell(square: Square | None) -> Cell:
    if square is None:
        return Cell(NOTHING)
    found = square.scores
    if len(found) < 2:
        return number(float(found.mean()), digits=0, note=square.note, incomplete=not square.complete)
    estimate = bootstrap_interval(mean, found[:, None], resamples=_RESAMPLES, seed=0)
    return number(
        estimate.value,
        estimate.low,
        estimate.high,
        digits=0,
        note=square.note,
        incomplete=not square.complete,
    )


def _paper_cell(published: Published | None, digits: int) -> Cell:
    if published is None:
        return Cell(NOTHING)
    return number(published.value, published.low, published.high, digits=digits)


def improvement_table(grid: Grid, at: int | None = None) -> Table | None:
    """How likely a run of one method beats one of another; None where there are no two on a common task."""
    rows = []
    for first, second in permutations(grid.methods, 2):
        squares = {
            task: (grid.square(first, task, at), grid.square(second, task, at))
            for task in grid.methods[first]
            if task in grid.methods[second]
        }
        ready = [(x, y) for x, y in squares.values() if x and y and x.agent_steps == y.agent_steps]
        if ready:
            x, y = (score_matrix([pair[side].scores for pair in ready]) for side in (0, 1))
            found = bootstrap_interval(probability_of_improvement, x, y, resamples=_RESAMPLES, seed=0)
            complete = all(square.complete for pair in ready for square in pair)
            note = f"{len(ready)} tasks" if complete else f"{len(ready)} tasks, incomplete"
            cell = number(found.value, found.low, found.high, digits=2, note=note, incomplete=not complete)
            rows.append((Cell(f"{first} beats {second}"), cell))
    if not rows:
        return None
    return Table(
        name="improvement",
        title="Probability of improvement",
        note="Of two runs on a task that both methods share, at the same step; ties count half.",
        columns=(Column("comparison"), Column("probability", "ours")),
        rows=tuple(rows),
    )


# --- aggregates ---------------------------------------------------------------------------------

Statistic = Callable[[FloatArray], FloatArray]
_STATISTICS: tuple[tuple[str, str | None, Statistic], ...] = (
    ("mean", "mean", mean),
    ("IQM over task means, as in the paper", "iqm", iqm_of_tasks),
    ("IQM over runs and tasks, as in rliable", None, iqm_of_runs),
    ("median over task means", None, median),
)
_GAP: tuple[str, str | None, Statistic] = ("optimality gap", None, optimality_gap)


def _aggregate_table(grid: Grid, benchmark: Benchmark, methods: Sequence[str], at: int | None) -> Table:
    paper_tasks = _paper_tasks(benchmark)
    ready = [task for task in paper_tasks if all(_at_the_end(grid, method, task, at) for method in methods)]
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
        note=f"95 % stratified bootstrap intervals. {_steps_note(benchmark, at)}",
        columns=_columns("aggregate", methods, benchmark.paper_methods),
        rows=tuple(rows),
    )


def _at_the_end(grid: Grid, method: str, task: str, at: int | None) -> bool:
    square = grid.square(method, task, at)
    return square is not None and square.at_the_end


def _metric_rows(
    grid: Grid,
    benchmark: Benchmark,
    methods: Sequence[str],
    metric: Metric,
    tasks: Sequence[str],
    at: int | None,
) -> list[tuple[Cell, ...]]:
    everything = len(tasks) == len(_paper_tasks(benchmark))
    statistics = (*_STATISTICS, _GAP) if metric.normalisation else _STATISTICS
    return [
        (
            Cell(f"{metric.title}, {title}, {len(tasks)} tasks"),
            *(_our_aggregate(grid, method, metric, tasks, statistic, at) for method in methods),
            *(
                _paper_cell(paper_aggregates()[benchmark.key, metric.key, key].get(method), metric.digits)
                if everything and key is not None
                else _recomputed(method, metric, tasks, statistic if key else None)
                for method in benchmark.paper_methods
            ),
        )
        for title, key, statistic in statistics
    ]


def _our_aggregate(
    grid: Grid, method: str, metric: Metric, tasks: Sequence[str], statistic: Statistic, at: int | None
) -> Cell:
    squares = {task: grid.square(method, task, at) for task in tasks}
    there = {task: square for task, square in squares.items() if square is not None and square.at_the_end}
    if len(there) < len(tasks):
        return Cell(NOTHING, note=f"runs on {len(there)} of {len(tasks)} tasks", incomplete=True)
    scores = score_matrix([_in_units(metric, task, square.scores) for task, square in there.items()])
    fewest = min(len(square.runs) for square in there.values())
    complete = all(square.complete for square in there.values())
    estimate = bootstrap_interval(statistic, scores, resamples=_RESAMPLES, seed=0)
    note = "" if complete else f"{fewest} seeds or more a task"
    return number(
        estimate.value, estimate.low, estimate.high, digits=metric.digits, note=note, incomplete=not complete
    )


def _recomputed(method: str, metric: Metric, tasks: Sequence[str], statistic: Statistic | None) -> Cell:
    """From the paper's scores of single tasks, which are means over its seeds."""
    scores = paper_estimates(method)
    if statistic is None or any(task not in scores for task in tasks):
        return Cell(NOTHING)
    columns = [_in_units(metric, task, np.array([scores[task].value])) for task in tasks]
    return number(float(statistic(np.stack(columns, axis=1))), digits=metric.digits)


def _in_units(metric: Metric, task: str, scores: FloatArray) -> FloatArray:
    return scores if metric.normalisation is None else normalised(metric.normalisation, task, scores)


def _columns(first: str, ours: Sequence[str], paper: Sequence[str]) -> tuple[Column, ...]:
    return (
        Column(first),
        *(Column(method, "ours") for method in ours),
        *(Column(method, "paper") for method in paper),
    )


def _steps_note(benchmark: Benchmark, at: int | None) -> str:
    theirs = PAPER_STEPS[benchmark.suite]
    if at is None or at == theirs:
        return f"Read at {_spaced(theirs)} agent steps."
    return f"Ours at {_spaced(at)} agent steps, the paper's at {_spaced(theirs)}."


def _spaced(steps: int) -> str:
    return f"{steps:,}".replace(",", " ")
