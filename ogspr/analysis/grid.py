"""Runs sorted into a grid of methods and tasks, and the score of a entry of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np

from ogspr.analysis.runs import FloatArray, IntArray, RunResult, cautions, nested, thousands
from ogspr.analysis.statistics import bootstrap_band, task_means
from ogspr.records.settings_io import flat
from ogspr.reference import read_table

_RESAMPLES = 2_000  # a curve has hundreds of points, and its band is looked at, not read off


@dataclass(frozen=True)
class Curve:
    """One method on one task, at every step at which any of its runs was evaluated."""

    agent_steps: IntArray  # (E,)
    frames: IntArray  # (E,)
    scores: FloatArray  # (runs, E); NaN: this run was not evaluated there
    mean: FloatArray  # (E,); NaN where a run is missing: it would be a mean of others than before
    low: FloatArray  # (E,) 95 % interval of the mean; NaN where there is one run only
    high: FloatArray  # (E,)


def curve(runs: Sequence[RunResult]) -> Curve:
    """All steps at which any of the runs was evaluated."""
    frames = {
        int(step): int(count)
        for run in runs
        for step, count in zip(run.evaluations.agent_steps, run.evaluations.frames, strict=True)
    }
    steps = np.array(sorted(frames), np.int64)
    scores = np.full((len(runs), len(steps)), np.nan)
    for row, run in zip(scores, runs, strict=True):
        row[np.searchsorted(steps, run.evaluations.agent_steps)] = run.evaluations.means
    return curve_of(steps, np.array([frames[int(step)] for step in steps], np.int64), scores)


def curve_of(agent_steps: IntArray, frames: IntArray, scores: FloatArray) -> Curve:
    """Mean and interval of scores (runs, E), step by step; each step has a run at least."""
    band = bootstrap_band(task_means, scores, resamples=_RESAMPLES)
    missing = np.isnan(scores).any(axis=0)
    mean = np.where(missing, np.nan, band.value)
    low, high = (np.where(missing | (len(scores) < 2), np.nan, end) for end in (band.low, band.high))
    return Curve(agent_steps, frames, scores, mean, low, high)


# --- curves of other methods that may be passed on -----------------------------------------------------


_FRAMES_A_STEP = 2  # DeepMind Control with actions held for two frames


@cache
def published_curves() -> dict[str, dict[str, Curve]]:
    """By task, then by method."""
    runs: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for row in read_table("published/dmc_pixel_curves.csv"):
        methods = runs.setdefault(f"dmc:{row['task']}", {})
        scores = methods.setdefault(row["method"], {}).setdefault(row["run"], {})
        scores[int(row["env_steps"])] = float(row["score"])
    return {
        task: {method: _curve(list(found.values())) for method, found in methods.items()}
        for task, methods in runs.items()
    }


def _curve(runs: list[dict[int, float]]) -> Curve:
    """Over the steps at which all of the runs have a score."""
    steps = np.array(sorted(set.intersection(*(set(run) for run in runs))), np.int64)
    scores = np.array([[run[int(step)] for step in steps] for run in runs])
    return curve_of(steps, steps * _FRAMES_A_STEP, scores)


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
class Entry:
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
            parts.append(f"{self.found - len(self.runs)} more without an evaluation there")
        if not self.at_the_end:
            read, wanted = thousands(self.agent_steps), thousands(self.wanted_steps)
            went_on = any(run.agent_steps > self.wanted_steps for run in self.runs)
            parts.append(
                f"read at {read} agent steps, no evaluation at {wanted}"
                if went_on
                else f"at {read} of {wanted} agent steps"
            )
        return ", ".join(parts)


@dataclass(frozen=True)
class Grid:
    """Runs by method and task. A method is a preset; runs of it with changed settings are another method."""

    methods: Mapping[str, Mapping[str, tuple[RunResult, ...]]]  # by name, then by task; seeds in order
    names: Mapping[Path, str]  # of the method of every run, also of those that do not count
    warnings: tuple[str, ...]
    _curves: dict[tuple[str, str], Curve] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tasks(self) -> list[str]:
        return sorted({task for tasks in self.methods.values() for task in tasks})

    @property
    def runs(self) -> list[RunResult]:
        return [run for tasks in self.methods.values() for runs in tasks.values() for run in runs]

    def entry(self, method: str, task: str, at: int | None = None) -> Entry | None:
        """The runs of a method on a task at a step; None where there are none, or none that share a step."""
        runs = self.methods.get(method, {}).get(task, ())
        return entry(runs, at or wanted_steps(task, self.runs)) if runs else None

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
    warnings += cautions(runs)
    names = method_names(runs)
    methods: dict[str, dict[str, tuple[RunResult, ...]]] = {}
    for name in dict.fromkeys(names.values()):
        members = [run for run in runs if names[run.folder] == name]
        for task in sorted({run.task for run in members}):
            seeds, left_out = _one_a_seed([run for run in members if run.task == task])
            methods.setdefault(name, {})[task] = seeds
            kept = {run.seed: run.folder for run in seeds}
            warnings += [
                f"{name} on {task}: seed {run.seed} appears more than once; {kept[run.seed]} counts, "
                f"{run.folder} does not: it is not further along"
                for run in left_out
            ]
    return Grid(dict(sorted(methods.items(), key=_paper_order)), names, tuple(warnings))


def entry(runs: Sequence[RunResult], wanted: int) -> Entry | None:
    """At the wanted step, if any run has come there; else at the last step that all have in common."""
    there = tuple(run for run in runs if run.score_at(wanted) is not None)
    if there:
        return Entry(there, wanted, wanted, len(runs))
    steps = [run.evaluations.agent_steps for run in runs]
    common = [int(step) for step in reduce(np.intersect1d, steps) if step <= wanted]
    return Entry(tuple(runs), max(common), wanted, len(runs)) if common else None


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


def _one_a_seed(runs: Sequence[RunResult]) -> tuple[tuple[RunResult, ...], list[RunResult]]:
    """The longest run of each seed, and the others."""
    longest: dict[int, RunResult] = {}
    for run in runs:
        other = longest.get(run.seed)
        if other is None or run.agent_steps > other.agent_steps:
            longest[run.seed] = run
    return tuple(longest[seed] for seed in sorted(longest)), [
        run for run in runs if run is not longest[run.seed]
    ]


def method_names(runs: Sequence[RunResult], most_named: int = _MOST_NAMED) -> dict[Path, str]:
    """The name of each run's method: that of its preset, and what was changed in it.

    Runs that were changed differently never share a name. With more changes than `most_named`, some are only
    counted: such a name means something among these runs, and nowhere else.
    """
    names: dict[Path, str] = {}
    for kind in dict.fromkeys(map(_kind, runs)):
        members = [run for run in runs if _kind(run) == kind]
        changes = _changes(members)
        preset, _, former = kind
        method = " ".join(filter(None, (PAPER_NAMES.get(preset, preset), former)))
        short = {_key(found): _name(method, found, most_named) for found in changes}
        repeated = {name for name, count in Counter(short.values()).items() if count > 1}
        for run, found in zip(members, changes, strict=True):
            name = short[_key(found)]
            names[run.folder] = _name(method, found, len(found)) if name in repeated else name
    return names


def _kind(run: RunResult) -> tuple[str, str, str]:
    return run.preset, run.suite, run.former


def _changes(runs: Sequence[RunResult]) -> list[Settings]:
    """What is special about each of some runs of one preset.

    Runs say what was changed from the preset. Older ones do not: those are compared with each other.
    """
    silent = [_flat_settings(run) for run in runs if _recorded(run) is None]
    usual = _most_common(silent) if silent else {}
    precision = _most_common([{"precision": _precision(run)} for run in runs])
    changes = []
    for run in runs:
        recorded = _recorded(run)
        if recorded is None:
            ours = _flat_settings(run)
            recorded = {
                name: ours.get(name)
                for name in usual.keys() | ours.keys()
                if usual.get(name) != ours.get(name)
            }
        other_precision = {"precision": _precision(run)} if _precision(run) != precision["precision"] else {}
        changes.append(recorded | other_precision)
    return changes


def _recorded(run: RunResult) -> Settings | None:
    found = nested(run.manifest, "settings", "changed")
    return found if isinstance(found, dict) else None


def _flat_settings(run: RunResult) -> Settings:
    return dict(flat({"agent": run.options.get("agent"), "env": run.options.get("env")}))


def _precision(run: RunResult) -> Any:
    return nested(run.options, "compute", "precision")


def _most_common(settings: Sequence[Settings]) -> Settings:
    """Of several that are as common, the first in the alphabet: the same one whatever the order of runs."""
    keys = Counter(_key(each) for each in settings)
    usual: Settings = json.loads(min(keys, key=lambda key: (-keys[key], key)))
    return usual


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


def _name(method: str, changes: Settings, most: int) -> str:
    parts = [_words(name, changes[name]) for name in sorted(changes)]
    more = [f"{len(parts) - most} more"] if len(parts) > most else []
    return ", ".join([method, *parts[:most], *more])


def _words(name: str, value: Any) -> str:
    return f"{name.removeprefix('agent.').replace('_', ' ')} {value}"


def _paper_order(item: tuple[str, Any]) -> tuple[int, str]:
    """As in the paper's tables, the others after them."""
    names = list(PAPER_NAMES.values())
    method = item[0]
    return (names.index(method) if method in names else len(names), method)
