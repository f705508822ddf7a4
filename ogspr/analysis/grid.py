"""Runs sorted into a grid of methods and tasks, and the score of a square of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from ogspr.analysis.curves import Curve, curve
from ogspr.analysis.runs import FloatArray, RunResult, mixed

PAPER_NAMES = {
    "ogspr": "OG-SPR",
    "anonmethod": "AnonMethod",
    "mrq": "MR.Q",
    "drqv2": "DrQ-v2",
    "ogspr-op": "OG-SPR - OP",
    "ogspr-sp": "OG-SPR - SP",
    "ogspr-svp": "OG-SPR - SVP",
    "shared-adapter": "Shared Adapter",
    "no-adapter": "No Adapter",
    "adapter2-only": "Adapter 2 Only",
}
"""Presets, as the paper calls them."""

PAPER_STEPS = {"dmc": 500_000, "atari": 100_000}
"""Agent steps at which the paper's tables are read."""
PAPER_SEEDS = 5

_MOST_NAMED = 3  # differences in the name of a method
Settings = dict[str, Any]


@dataclass(frozen=True)
class Square:
    """One method on one task, at one step of training."""

    runs: tuple[RunResult, ...]  # those that count
    agent_steps: int
    wanted_steps: int
    found: int  # runs, also those that are not so far yet

    @property
    def scores(self) -> FloatArray:
        """(runs,)"""
        return np.array([run.score_at(self.agent_steps) for run in self.runs], np.float64)

    @property
    def at_the_end(self) -> bool:
        return self.agent_steps == self.wanted_steps

    @property
    def complete(self) -> bool:
        return self.at_the_end and len(self.runs) >= PAPER_SEEDS

    @property
    def note(self) -> str:
        """What is missing; "" where nothing is."""
        parts = []
        if len(self.runs) < PAPER_SEEDS:
            parts.append(f"{len(self.runs)} of {PAPER_SEEDS} seeds")
        if len(self.runs) < self.found:
            parts.append(f"{self.found - len(self.runs)} more not so far yet")
        if not self.at_the_end:
            parts.append(f"at {self.agent_steps:,} of {self.wanted_steps:,} agent steps".replace(",", " "))
        return ", ".join(parts)


@dataclass(frozen=True)
class Grid:
    """Runs by method and task. A method is a preset; runs of it with other settings are another method."""

    methods: Mapping[str, Mapping[str, tuple[RunResult, ...]]]  # by name, then by task; seeds in order
    warnings: tuple[str, ...]
    _curves: dict[tuple[str, str], Curve] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tasks(self) -> list[str]:
        return sorted({task for tasks in self.methods.values() for task in tasks})

    @property
    def runs(self) -> list[RunResult]:
        return [run for tasks in self.methods.values() for runs in tasks.values() for run in runs]

    def square(self, method: str, task: str, at: int | None = None) -> Square | None:
        """The runs of a method on a task at a step; None where there are none, or none that share a step."""
        runs = self.methods.get(method, {}).get(task, ())
        return square(runs, at or wanted_steps(task, self.runs)) if runs else None

    def curve(self, method: str, task: str) -> Curve:
        """Over all its steps; computed once."""
        key = (method, task)
        if key not in self._curves:
            self._curves[key] = curve(self.methods[method][task])
        return self._curves[key]


def make_grid(runs: Iterable[RunResult]) -> Grid:
    """Sorts runs; says what should not be compared without a thought."""
    runs = tuple(runs)
    warnings = [f"{run.folder}: {problem}" for run in runs for problem in run.problems]
    warnings += mixed(runs)
    methods: dict[str, dict[str, tuple[RunResult, ...]]] = {}
    for name, members in _named(runs).items():
        for task in sorted({run.task for run in members}):
            seeds, repeated = _one_a_seed([run for run in members if run.task == task])
            methods.setdefault(name, {})[task] = seeds
            warnings += [
                f"{name} on {task}: seed {seed} is there more than once; the longest run counts"
                for seed in repeated
            ]
    return Grid(dict(sorted(methods.items(), key=_paper_order)), tuple(warnings))


def square(runs: Sequence[RunResult], wanted: int) -> Square | None:
    """At the wanted step, if any run has come there; else at the last step that all have in common."""
    there = tuple(run for run in runs if run.score_at(wanted) is not None)
    if there:
        return Square(there, wanted, wanted, len(runs))
    steps = [run.evaluations.agent_steps for run in runs]
    common = [int(step) for step in reduce(np.intersect1d, steps) if step <= wanted]
    return Square(tuple(runs), max(common), wanted, len(runs)) if common else None


def score_matrix(columns: Sequence[FloatArray]) -> FloatArray:
    """Scores of tasks side by side, (runs, tasks); NaN where a task has fewer runs than another."""
    matrix = np.full((max(len(column) for column in columns), len(columns)), np.nan)
    for place, column in enumerate(columns):
        matrix[: len(column), place] = column
    return matrix


def wanted_steps(task: str, runs: Iterable[RunResult]) -> int:
    """Where the paper reads its tables; for other tasks, the end of the longest run."""
    suite = task.partition(":")[0]
    if suite in PAPER_STEPS:
        return PAPER_STEPS[suite]
    return max(run.wanted_steps for run in runs if run.task == task)


def _one_a_seed(runs: Sequence[RunResult]) -> tuple[tuple[RunResult, ...], list[int]]:
    """The longest run of each seed, and the seeds that had several."""
    longest: dict[int, RunResult] = {}
    for run in runs:
        other = longest.get(run.seed)
        if other is None or run.agent_steps > other.agent_steps:
            longest[run.seed] = run
    counts = Counter(run.seed for run in runs)
    return tuple(longest[seed] for seed in sorted(longest)), sorted(s for s in counts if counts[s] > 1)


def _named(runs: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Runs by the name of their method, which tells what is unlike the other runs of its preset."""
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for run in runs:
        groups.setdefault((run.preset, run.suite), []).append(run)
    named: dict[str, list[RunResult]] = {}
    for (preset, _), members in groups.items():
        usual = _most_common([_settings(run) for run in members])
        for run in members:
            name = _name(PAPER_NAMES.get(preset, preset), usual, _settings(run))
            named.setdefault(name, []).append(run)
    return named


def _settings(run: RunResult) -> Settings:
    """What decides how a run learns, flat."""
    options = run.options
    compute = options.get("compute", {})
    chosen = {
        "agent": options.get("agent", {}),
        "env": options.get("env", {}),
        "precision": compute.get("precision") if isinstance(compute, dict) else None,
    }
    return dict(_flat(chosen))


def _flat(tree: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if not isinstance(tree, dict):
        yield path, tree
        return
    for name, value in tree.items():
        yield from _flat(value, f"{path}.{name}" if path else str(name))


def _most_common(settings: Sequence[Settings]) -> Settings:
    """Of several that are as common, the first in the alphabet: the same one whatever the order of runs."""
    keys = Counter(json.dumps(each, sort_keys=True) for each in settings)
    key = min(keys, key=lambda key: (-keys[key], key))
    usual: Settings = json.loads(key)
    return usual


def _name(method: str, usual: Settings, settings: Settings) -> str:
    names = sorted(name for name in usual.keys() | settings.keys() if usual.get(name) != settings.get(name))
    parts = [_words(name, settings.get(name)) for name in names]
    more = [f"{len(parts) - _MOST_NAMED} more"] if len(parts) > _MOST_NAMED else []
    return ", ".join([method, *parts[:_MOST_NAMED], *more])


def _words(name: str, value: Any) -> str:
    return f"{name.removeprefix('agent.').replace('_', ' ')} {value}"


def _paper_order(item: tuple[str, Any]) -> tuple[int, str]:
    """As in the paper's tables, the others after them."""
    names = list(PAPER_NAMES.values())
    method = item[0]
    return (names.index(method) if method in names else len(names), method)
