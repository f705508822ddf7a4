"""Runs on disk as numbers: what a run was, and what its evaluations found."""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ogspr.errors import UserError
from ogspr.records.files import read_file
from ogspr.records.run import RunFolder, read_json, short_commit


def plural(count: int, word: str) -> str:
    """A number of things: `1 run`, `2 runs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def thousands(number: int) -> str:
    """In groups of three: `500 000`."""
    return f"{number:,}".replace(",", " ")


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SETTINGS = {"task": str, "preset": str, "seed": int, "options": dict}  # what is used of config.json
# Methods that changed, by name and revision: runs of both never share a line of a table.
_FORMER = {("ogspr", "1"): "of ogspr 0.1"}
_MOST_STEPS = 10**12  # beyond that a number is damage, not training
_LARGEST_SCORE = 1e15


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of one run, by agent steps."""

    agent_steps: IntArray  # (E,), increasing
    frames: IntArray  # (E,)
    scores: tuple[FloatArray, ...]  # of every single episode

    @property
    def means(self) -> FloatArray:
        return np.array([scores.mean() for scores in self.scores])

    def __len__(self) -> int:
        return len(self.agent_steps)


@dataclass(frozen=True)
class RunResult:
    """One run, as far as it has come."""

    folder: Path
    task: str
    preset: str
    seed: int
    options: dict[str, Any]
    manifest: dict[str, Any]
    evaluations: Evaluations
    problems: tuple[str, ...] = ()  # parts of it that could not be used
    former: str = ""  # which earlier method it is of, where the preset means another one today

    @property
    def suite(self) -> str:
        return self.task.partition(":")[0]

    @property
    def wanted_steps(self) -> int:
        steps: int = self.options["agent_steps"]
        return steps

    @property
    def agent_steps(self) -> int:
        """At the last evaluation."""
        return int(self.evaluations.agent_steps[-1])

    @property
    def finished(self) -> bool:
        return self.agent_steps >= self.wanted_steps

    @property
    def last(self) -> float:
        return float(self.evaluations.means[-1])

    @property
    def best(self) -> float:
        return float(self.evaluations.means.max())

    def score_at(self, agent_steps: int) -> float | None:
        """Mean score of the evaluation at exactly this step; None where there is none."""
        (found,) = np.nonzero(self.evaluations.agent_steps == agent_steps)
        return float(self.evaluations.scores[found[0]].mean()) if len(found) else None


@dataclass(frozen=True)
class Collection:
    """The runs below some folders, and the folders that hold none that can be used."""

    runs: tuple[RunResult, ...]
    skipped: tuple[tuple[Path, str], ...]  # folder and reason


def collect(paths: Iterable[Path], read: Callable[[Path], RunResult] | None = None) -> Collection:
    """All runs in or below `paths`; what is broken is named and skipped.

    Args:
        paths: Folders.
        read: Reads a run; `read_run`, or a cached reader.
    """
    runs: list[RunResult] = []
    skipped: list[tuple[Path, str]] = []
    for path in checked_folders(paths):
        folders, closed = run_folders(path)
        skipped += closed
        if not folders and not closed:
            skipped.append((path, "contains no runs (no config.json with eval.csv)"))
        for folder in folders:
            try:
                runs.append((read or read_run)(folder))
            except UserError as error:
                skipped.append((folder, str(error).removeprefix(f"{folder} ")))
    unique = {run.folder.resolve(): run for run in runs}
    return Collection(tuple(unique[key] for key in sorted(unique)), tuple(skipped))


def checked_folders(paths: Iterable[Path]) -> list[Path]:
    """The same; a UserError if there are none, or one of them is not a folder."""
    folders = list(paths)
    if not folders:
        raise UserError("no runs were given: pass run folders, or folders that contain runs, usually `runs`.")
    for path in folders:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; pass run folders, or folders that contain runs.")
    return folders


def run_folders(path: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Folders with files that only a run writes, and places that could not or should not be searched.

    Links are not followed, nor is a run looked into.
    """
    found: list[Path] = []
    closed: list[tuple[Path, str]] = []

    def note(error: OSError) -> None:
        closed.append((Path(error.filename), f"cannot be read: {error.strerror}"))

    for place, folders, files in os.walk(path, onerror=note):
        if "config.json" in files or "eval.csv" in files:
            folders.clear()
            found.append(Path(place))
        links = [Path(place) / name for name in folders if (Path(place) / name).is_symlink()]
        closed += [
            (link, "is a link; pass the folder it points to") for link in links if _looks_like_a_run(link)
        ]
        folders.sort()
    return found, closed


def _looks_like_a_run(path: Path) -> bool:
    try:
        return (path / "config.json").exists()
    except OSError:
        return False


def read_run(path: Path) -> RunResult:
    """A UserError where it is damaged, of another format, or has no evaluation yet."""
    run = read_settings(path)
    evaluations, problems = _read_evaluations(RunFolder(path).evaluation_table, _episodes(run))
    return replace(run, evaluations=evaluations, problems=tuple(problems))


def read_settings(path: Path) -> RunResult:
    """What a run is, without what its evaluations found. A UserError where it is damaged or foreign."""
    folder = RunFolder(path)
    config = read_json(folder.config)
    _check_config(folder.config, config)
    return RunResult(
        folder=path,
        task=config["task"],
        preset=config["preset"],
        seed=config["seed"],
        options=config["options"],
        manifest=read_json(folder.manifest) if folder.manifest.exists() else {},
        evaluations=Evaluations(np.zeros(0, np.int64), np.zeros(0, np.int64), ()),
        former=_FORMER.get((str(config.get("method")), str(config.get("revision", 1))), ""),
    )


def _check_config(path: Path, config: dict[str, Any]) -> None:
    """Everything that is used later is of the type it should be."""
    for name, kind in _SETTINGS.items():
        if type(config.get(name)) is not kind:
            raise UserError(f"{path} is damaged or not from ogspr: {name} is {config.get(name)!r}.")
    suite, _, task = config["task"].partition(":")
    names = config["task"] + config["preset"]
    if not suite or not task or not names.isprintable():  # half a character is not printable either
        raise UserError(f"{path} is damaged or not from ogspr: no task is called {config['task']!r}.")
    steps = config["options"].get("agent_steps")
    if type(steps) is not int or not 0 < steps <= _MOST_STEPS:
        raise UserError(f"{path} is damaged or not from ogspr: options.agent_steps is {steps!r}.")


def read_columns(path: Path, most: int | None = None) -> tuple[list[str], FloatArray]:
    """Names and numbers of a csv file, empty if there is none; a row that is being written is skipped.

    With `most`, at most that many rows: every n-th, the last one always.
    """
    lines = _whole_lines(path) if path.exists() else []
    every = max(1, math.ceil((len(lines) - 1) / most)) if most else 1
    rows = _rows(path, [*lines[:1], *lines[:0:-every][::-1]])
    if not rows:
        return [], np.zeros((0, 0))
    header, *body = rows
    numbers = [[_number(text) for text in row] for row in body if len(row) == len(header)]
    return header, np.array(numbers, np.float64).reshape(len(numbers), len(header))


def _episodes(run: RunResult) -> tuple[int, ...]:
    """Of an evaluation; if the last one has another number, that comes second. Empty: unknown."""
    numbers = (nested(run.options, "evaluation", name) for name in ("episodes", "final_episodes"))
    return tuple(dict.fromkeys(number for number in numbers if isinstance(number, int)))


def _read_evaluations(path: Path, episodes: Sequence[int]) -> tuple[Evaluations, list[str]]:
    """`episodes`: how many an evaluation may have, wherever it is.

    A run that was made longer has its last one in the middle, and one that was ended where it had been
    evaluated already has none.
    """
    grouped, problems = _grouped_scores(path)
    usable = {}
    for agent_steps, (frames, scores) in sorted(grouped.items()):
        if not all(abs(score) < _LARGEST_SCORE for score in scores):  # NaN is not
            problems.append(f"the evaluation at agent step {agent_steps} has a score that is not a number")
        elif episodes and len(scores) not in episodes:
            wanted = min((number for number in episodes if number > len(scores)), default=max(episodes))
            problems.append(
                f"the evaluation at agent step {agent_steps} has {len(scores)} of {wanted} episodes"
            )
        else:
            usable[agent_steps] = (frames, np.array(scores))
    if not usable:
        raise UserError("; ".join([f"{path} has no usable evaluation", *problems]) + ".")
    steps = np.array(list(usable), np.int64)
    frames_of = np.array([frames for frames, _ in usable.values()], np.int64)
    return Evaluations(steps, frames_of, tuple(scores for _, scores in usable.values())), problems


def _grouped_scores(path: Path) -> tuple[dict[int, tuple[int, list[float]]], list[str]]:
    """Frames and scores by agent steps."""
    if not path.exists():
        raise UserError(f"{path.parent} has no evaluation yet: {path.name} does not exist.")
    rows = _rows(path, _whole_lines(path))
    if not rows:
        raise UserError(f"{path.parent} has no evaluation yet: {path.name} is empty.")
    header = rows[0]
    try:
        place = [header.index(name) for name in ("agent_steps", "frames", "score")]
    except ValueError:
        raise UserError(f"{path} lacks the columns agent_steps, frames and score.") from None
    grouped: dict[int, tuple[int, list[float]]] = {}
    damaged = 0
    for row in rows[1:]:
        try:
            agent_steps, frames = (_count(row[column]) for column in place[:2])
            grouped.setdefault(agent_steps, (frames, []))[1].append(float(row[place[2]]))
        except (IndexError, ValueError):
            damaged += 1
    return grouped, [f"{damaged} rows of {path.name} are damaged"] if damaged else []


def _whole_lines(path: Path) -> list[str]:
    """Without a last line that is still being written."""
    try:
        text = read_file(path).decode("utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    return text[: text.rfind("\n") + 1].replace("\0", "").splitlines()


def _rows(path: Path, lines: Sequence[str]) -> list[list[str]]:
    try:
        return list(csv.reader(lines))
    except csv.Error as error:
        raise UserError(f"{path} is damaged: {error}.") from None


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _MOST_STEPS:
        raise ValueError(f"{number} is not a number of steps")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def nested(tree: Any, *names: str) -> Any:
    """The value at a path of names; None where the path ends earlier."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def cautions(runs: Sequence[RunResult]) -> list[str]:
    """A line for everything that should not be compared without a thought."""
    return [*mixed(runs), *unlike_the_paper(runs)]


def mixed(runs: Sequence[RunResult]) -> list[str]:
    """A line for everything that should be the same in runs of a suite, and is not."""
    lines = []
    for suite in dict.fromkeys(run.suite for run in runs):
        members = [run for run in runs if run.suite == suite]
        for title, value in _WATCHED.items():
            counts = Counter(str(found) for run in members if (found := value(run)) is not None)
            if len(counts) > 1:
                listed = ", ".join(
                    f"{name} ({plural(count, 'run')})" for name, count in sorted(counts.items())
                )
                lines.append(f"runs of {suite} were made with different {title}: {listed}")
    return lines


# What the paper shows an agent, by suite; where a run does not say what it did, it did that.
_PAPER_PROTOCOL: dict[str, dict[str, Any]] = {
    "dmc": {"image_size": 84, "frame_stack": 3, "action_repeat": 2, "shadows": True},
    "atari": {"image_size": 84, "frame_stack": 4, "action_repeat": 4, "preset": "atari100k"},
}


def unlike_the_paper(runs: Sequence[RunResult]) -> list[str]:
    """A line for each way in which runs show their agents something else than the paper does."""
    counts = Counter((run.suite, other) for run in runs if (other := _departures(run)))
    return [
        f"{plural(count, 'run')} of {suite} not under the paper's protocol: {other}; "
        "not comparable with its scores"
        for (suite, other), count in sorted(counts.items())
    ]


def _departures(run: RunResult) -> str:
    protocol = dict(_protocol_of(run) or {})
    if protocol.get("preset") == "ogspr":  # its authors' own
        protocol["preset"] = "atari100k"
    return ", ".join(
        f"{name} {protocol[name]} instead of {value}"
        for name, value in _PAPER_PROTOCOL.get(run.suite, {}).items()
        if protocol.get(name, value) != value
    )


def _library(name: str, suite: str) -> Callable[[RunResult], Any]:
    """Its version in runs of the suite that depends on it."""

    def version(run: RunResult) -> Any:
        return (nested(run.manifest, "libraries", name) or _UNKNOWN) if run.suite == suite else None

    return version


# Parts of a protocol that belong to a task, and to a method: scores mean the same with any of them.
_NO_MATTER = ("camera", "sign_rewards", "terminal_on_life_loss")


def _protocol_of(run: RunResult) -> dict[str, Any] | None:
    """None where the run does not say."""
    protocol = nested(run.manifest, "environment", "protocol")
    return protocol if isinstance(protocol, dict) else None


def _protocol(run: RunResult) -> str:
    protocol = _protocol_of(run)
    if protocol is None:
        return _UNKNOWN
    if protocol.get("suite") == "atari":
        protocol = {"fire": False} | protocol  # older runs do not say
    return ", ".join(f"{name} {value}" for name, value in sorted(protocol.items()) if name not in _NO_MATTER)


def _code(run: RunResult) -> str:
    """The version of this package, and which state of it, where that was written down."""
    commit = run.manifest.get("commit")
    version = str(run.manifest.get("ogspr", _UNKNOWN))
    return f"{version} at {short_commit(commit)}" if isinstance(commit, str) else version


_UNKNOWN = "unknown"
_WATCHED: dict[str, Callable[[RunResult], Any]] = {
    "versions of ogspr": _code,
    "versions of mujoco, which renders other images": _library("mujoco", "dmc"),
    "versions of dm_control": _library("dm_control", "dmc"),
    "versions of ale-py": _library("ale-py", "atari"),
    "renderers": lambda run: nested(run.manifest, "environment", "renderer"),
    "protocols": _protocol,
    "numbers of evaluation episodes": lambda run: " and at the end ".join(map(str, _episodes(run))) or None,
}
