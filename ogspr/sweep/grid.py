"""A grid of runs as data: tasks x presets x seeds, from a TOML file or one that ships with the package.

    seeds = [42, 99, 123]                  # of every cell that names none of its own
    out = "runs"                           # folders lie below: <task>/<name>/seed-<seed>

    [[cells]]
    tasks = ["dmc28", "atari:Pong"]        # tasks, or names of sets
    presets = ["ogspr", "mrq"]

    [[cells]]
    tasks = "dmc:walker-walk"
    presets = "ogspr"
    name = "large-batch"                   # in the place of the preset, because options differ
    options = { agent.batch_size = 512 }

No torch: a grid of thousands of runs is planned in seconds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from ogspr.envs import check_task, is_own_code
from ogspr.errors import UserError, unknown
from ogspr.records.run import folder_name
from ogspr.records.settings_io import changed
from ogspr.reference import METHOD, paper_scores
from ogspr.training.options import TrainOptions
from ogspr.training.presets import preset_options

_DEFAULT_SEEDS = (0,)
_SHOWN_PROBLEMS = 10
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Unit:
    """One task x one method with some seeds: a process, on one GPU."""

    task: str
    preset: str
    name: str  # of the method: the preset, or what a cell calls it
    seeds: tuple[int, ...]
    folder: Path  # of its runs, seed-<seed> below
    options: dict[str, Any] = field(hash=False)
    """What differs from the preset."""
    agent_steps: int
    """Of each seed."""
    part: str = ""
    """Which seeds, if all seeds of one method on one task do not fit on a GPU."""

    @property
    def id(self) -> str:
        """Names its files; unique in a grid."""
        return f"{self.folder.parent.name}--{self.name}{self.part}"

    @property
    def title(self) -> str:
        return f"{self.task} {self.name}{self.part.replace('-', ' ')}"

    def settings(self) -> TrainOptions[Any]:
        return changed(preset_options(self.preset, self.task), self.options, self.title)


@dataclass(frozen=True)
class Cell:
    """Every task x every preset, with the same options."""

    tasks: tuple[str, ...]
    presets: tuple[str, ...] = ("ogspr",)
    seeds: tuple[int, ...] = ()
    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """What a grid file says."""

    source: str
    out: Path
    units: tuple[Unit, ...]


def task_sets() -> dict[str, tuple[str, ...]]:
    """Tasks of the paper by the names a grid may use."""
    tasks = sorted(paper_scores(METHOD))
    dmc = tuple(task for task in tasks if task.startswith("dmc:"))
    atari = tuple(task for task in tasks if task.startswith("atari:"))
    return {
        f"dmc{len(dmc)}": dmc,
        f"atari{len(atari)}": atari,
        "humanoid": tuple(task for task in dmc if task.startswith("dmc:humanoid-")),
    }


def grid_names() -> list[str]:
    """The grids that ship with the package: the paper's experiments."""
    folder = files("ogspr") / "data" / "grids"
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))


def read_grid(given: str, out: Path | None = None) -> Grid:
    """A grid by the path of its file or by its name; a UserError with everything that is wrong in it.

    `out` takes the place of the folder in the file.
    """
    path = Path(given)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UserError(f"cannot read {path}: {reason}.") from None
    elif given in grid_names():
        text = (files("ogspr") / "data" / "grids" / f"{given}.toml").read_text(encoding="utf-8")
    else:
        raise unknown("grid", given, grid_names(), "Pass one of these, or the path of a .toml file.")
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise UserError(f"{given} is not TOML: {error}.") from None
    return _grid(given, content, out)


def _grid(source: str, content: dict[str, Any], out: Path | None) -> Grid:
    top = changed(_Top(), {k: v for k, v in content.items() if k != "cells"}, source)
    cells = content.get("cells")
    if not isinstance(cells, list) or not cells:
        raise UserError(f"{source} has no [[cells]]; each needs tasks and presets.")
    base = out if out is not None else top.out
    problems: list[str] = []
    units: list[Unit] = []
    for number, given in enumerate(cells, start=1):
        try:
            found = list(_units(_cell(given, f"{source}, cell {number}"), top, base))
            for unit in found:
                _check(unit)
        except UserError as error:
            problems.append(str(error))
        else:
            units += found
    problems += _twice(units)
    if problems:
        shown = "\n".join(problems[:_SHOWN_PROBLEMS])
        more = len(problems) - _SHOWN_PROBLEMS
        raise UserError(shown + (f"\nand {more} more like these" if more > 0 else ""))
    return Grid(source, base, tuple(units))


@dataclass(frozen=True)
class _Top:
    seeds: tuple[int, ...] = _DEFAULT_SEEDS
    out: Path = Path("runs")


def _cell(given: Any, where: str) -> Cell:
    if not isinstance(given, dict) or not given.get("tasks"):
        raise UserError(f"{where} names no tasks.")
    options = given.get("options", {})
    if not isinstance(options, dict):
        raise UserError(f"{where}: options must be named values, got {options!r}.")
    listed = {
        name: [value] if isinstance(value, str) and name in ("tasks", "presets") else value
        for name, value in given.items()
        if name != "options"
    }
    cell = changed(Cell(()), listed, where)
    if options and not cell.name:
        raise UserError(f"{where} changes options, so it needs a name, which takes the preset's place.")
    if cell.name and len(cell.presets) > 1:
        raise UserError(f"{where} has one name for {len(cell.presets)} presets; make a cell of each.")
    if cell.name and not _NAME.fullmatch(cell.name):
        raise UserError(f"{where}: a name has letters, digits, '-', '_' and '.', got {cell.name!r}.")
    if len(set(cell.seeds)) != len(cell.seeds):
        raise UserError(f"{where} names a seed twice.")
    return Cell(cell.tasks, cell.presets, cell.seeds, cell.name, options)


def _units(cell: Cell, top: _Top, base: Path) -> Iterator[Unit]:
    sets = task_sets()
    for named in cell.tasks:
        if ":" not in named and named not in sets:
            raise unknown("set of tasks", named, sets, "Or name tasks: dmc:walker-walk.")
        for task in sets.get(named, (named,)):
            for preset in cell.presets:
                name = cell.name or preset
                steps = changed(preset_options(preset, task), cell.options, f"{task} {name}").agent_steps
                seeds = cell.seeds or top.seeds
                yield Unit(task, preset, name, seeds, base / folder_name(task) / name, cell.options, steps)


def _check(unit: Unit) -> None:
    settings = unit.settings()
    if not is_own_code(unit.task):  # that is imported only where a user names it
        check_task(unit.task, settings.env)


def _twice(units: Sequence[Unit]) -> list[str]:
    seen: dict[Path, Unit] = {}
    problems = []
    for unit in units:
        before = seen.setdefault(unit.folder, unit)
        if before is not unit and before.options != unit.options:
            problems.append(f"two cells want {unit.folder} for different options; give one another name.")
        elif before is not unit and set(before.seeds) & set(unit.seeds):
            problems.append(f"two cells have {unit.title} with the same seed.")
    return problems
