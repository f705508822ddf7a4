"""Means over the tasks of a suite, step by step, in units that make scores of different tasks comparable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ogspr.analysis.grid import Curve, Grid, score_matrix
from ogspr.analysis.runs import FloatArray
from ogspr.analysis.statistics import bootstrap_interval, mean, normalised
from ogspr.reference import paper_scores

_FEWEST_TASKS = 2  # that are worth a mean
_RESAMPLES = 1_000


@dataclass(frozen=True)
class Unit:
    """What scores of different tasks are measured in, so that they can be averaged."""

    title: str
    convert: Callable[[str, FloatArray], FloatArray]  # task, scores
    tasks: Callable[[str], bool]  # those that have it


RAW = Unit("score", lambda _task, scores: scores, lambda task: task.startswith("dmc:"))
SHARE = Unit("score / 1000", lambda _task, scores: scores / 1000.0, lambda task: task.startswith("dmc:"))
DRQV2 = Unit(
    "DrQ-v2-normalised score",
    lambda task, scores: normalised("drqv2", task, scores),
    lambda task: task.startswith("dmc:") and task in paper_scores("DrQ-v2"),
)
HUMAN = Unit(
    "human-normalised score",
    lambda task, scores: normalised("human", task, scores),
    lambda task: task in paper_scores("Human"),
)
PER_CENT_HUMAN = Unit(
    "human-normalised score in per cent",
    lambda task, scores: 100.0 * normalised("human", task, scores),
    HUMAN.tasks,
)


@dataclass(frozen=True)
class Aggregate:
    """Curves of several methods on the same tasks, averaged over these."""

    unit: Unit
    tasks: tuple[str, ...]
    lines: dict[str, Curve]  # by method; at the steps at which all of its runs of all tasks were evaluated


def aggregate(grid: Grid, tasks: Sequence[str], unit: Unit) -> Aggregate | None:
    """Of the tasks that all methods have in common; None where there is nothing to average."""
    shared = averaged_tasks(grid, tasks, unit)
    if not shared:
        return None
    found = {method: _mean_curve(grid, method, shared, unit) for method in _methods_on(grid, shared)}
    lines = {method: line for method, line in found.items() if len(line.agent_steps)}
    return Aggregate(unit, tuple(shared), lines) if lines else None


def paper_mean(method: str, found: Aggregate) -> float | None:
    """Of the paper's final scores on the same tasks; None where it does not have all of them."""
    scores = paper_scores(method)
    if not all(task in scores for task in found.tasks):
        return None
    return float(np.mean([found.unit.convert(task, np.array([scores[task]])) for task in found.tasks]))


def averaged_tasks(grid: Grid, tasks: Sequence[str], unit: Unit) -> list[str]:
    """Tasks with this unit that every method has which has any of them; none where one is left alone."""
    measured = [task for task in tasks if unit.tasks(task)]
    methods = _methods_on(grid, measured)
    shared = [task for task in measured if all(task in grid.methods[method] for method in methods)]
    return shared if len(shared) >= _FEWEST_TASKS else []


def _methods_on(grid: Grid, tasks: Sequence[str]) -> list[str]:
    return [method for method, runs in grid.methods.items() if any(task in runs for task in tasks)]


def _mean_curve(grid: Grid, method: str, tasks: Sequence[str], unit: Unit) -> Curve:
    """Without single runs: runs of different tasks do not belong together."""
    curves = {task: grid.curve(method, task) for task in tasks}
    known = [set(line.agent_steps[~np.isnan(line.mean)].tolist()) for line in curves.values()]
    steps = np.array(sorted(set.intersection(*known)), np.int64)
    places = {task: np.searchsorted(line.agent_steps, steps) for task, line in curves.items()}
    frames = [line.frames[places[task]] for task, line in curves.items()]
    several = min(len(line.scores) for line in curves.values()) > 1
    ends = np.full((3, len(steps)), np.nan)
    for at in range(len(steps)):
        scores = [unit.convert(task, line.scores[:, places[task][at]]) for task, line in curves.items()]
        found = bootstrap_interval(mean, score_matrix(scores), resamples=_RESAMPLES)
        ends[:, at] = (found.value, *((found.low, found.high) if several else (np.nan, np.nan)))
    return Curve(steps, np.mean(frames, axis=0).astype(np.int64), np.empty((0, len(steps))), *ends)
