"""What the units of a grid need: hours, memory, cores, disk. Every number says where it comes from.

Times are those of one H200 on cheetah-run (`ogspr/data/speed.csv`), until runs of the sweep itself tell how
fast they are. Milliseconds are of one agent step of all seeds together, evaluation included.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ogspr.errors import UserError
from ogspr.reference import read_table
from ogspr.sweep.grid import Grid, Unit
from ogspr.sweep.state import UnitState
from ogspr.training.options import TrainOptions

_GB = 1e9
_LARGEST_REPLAY = 1_000_000
_OTHER_GPU_MEMORY = 1.4e9  # of a seed, besides its replay: networks, optimisers, graphs
_CONTEXT_MEMORY = 1.0e9  # of a process, whatever it does
_CHECKPOINT_AND_RESULTS = 0.2e9  # of a finished seed
_IMAGE_SIDE = 84
_MEASURED_FROM = 10_000  # agent steps after which a run's own speed is believed
_USABLE = 0.95  # of the memory of a GPU


@dataclass(frozen=True)
class Needs:
    """What a unit takes."""

    hours: float
    source: str  # of the hours
    gpu_bytes: float
    cores: int
    memory_bytes: float
    peak_disk_bytes: float
    kept_disk_bytes: float


@dataclass(frozen=True)
class Speeds:
    """Milliseconds of an agent step by (preset, suite, number of seeds), as this sweep has measured them."""

    measured: dict[tuple[str, str, int], float]

    def milliseconds(self, unit: Unit) -> tuple[float, str]:
        """And where that comes from."""
        key = (unit.preset, _suite(unit.task), len(unit.seeds))
        if key in self.measured:
            return self.measured[key], "measured in this sweep"
        known = _known_speeds()
        preset = unit.preset if unit.preset in known else "ogspr"
        measured = preset == unit.preset and unit.task.startswith("dmc:")
        whose = "as cheetah-run on an H200" if measured else "a guess: as ogspr on cheetah-run, on an H200"
        one = known[preset][1]
        return one * _times_for(len(unit.seeds)), whose


def speeds_of(states: Iterable[UnitState]) -> Speeds:
    """From the system.csv of runs that have gone on for long enough."""
    measured: dict[tuple[str, str, int], float] = {}
    for state in states:
        unit = state.unit
        if state.steps < _MEASURED_FROM * len(unit.seeds):
            continue
        found = _measured(unit.folder / f"seed-{unit.seeds[0]}" / "system.csv")
        if found is not None:
            measured[unit.preset, _suite(unit.task), len(unit.seeds)] = found
    return Speeds(measured)


def needs(unit: Unit, speeds: Speeds) -> Needs:
    options = unit.settings()
    milliseconds, source = speeds.milliseconds(unit)
    replay, count = _replay_bytes(unit, options), len(unit.seeds)
    return Needs(
        hours=milliseconds * unit.agent_steps / 3.6e6,
        source=source,
        gpu_bytes=count * (replay + _OTHER_GPU_MEMORY) + _CONTEXT_MEMORY,
        cores=4 + 2 * count,
        memory_bytes=(6 + 3 * count) * _GB,
        peak_disk_bytes=count * (replay + _CHECKPOINT_AND_RESULTS),
        kept_disk_bytes=count * (_CHECKPOINT_AND_RESULTS + (0 if _drops_replay(options) else replay)),
    )


def fitted(grid: Grid, gpu_bytes: float | None) -> Grid:
    """The grid with as many seeds in a unit as fit on a GPU; None or infinite: all of them.

    Seeds of one task and method share a process where they can: five take less time than five processes.
    """
    if gpu_bytes is None or math.isinf(gpu_bytes):
        return grid
    units: list[Unit] = []
    for unit in grid.units:
        options = unit.settings()
        a_seed = _replay_bytes(unit, options) + _OTHER_GPU_MEMORY
        fit = int((_USABLE * gpu_bytes - _CONTEXT_MEMORY) // a_seed)
        if fit < 1 and options.replay.place != "pinned":
            needed = (a_seed + _CONTEXT_MEMORY) / _GB
            raise UserError(
                f"{unit.title} needs {needed:.0f} GB of GPU memory for one seed, and there are "
                f"{gpu_bytes / _GB:.0f}; give it options = {{ replay.place = 'pinned' }}."
            )
        units += _parts(unit, max(fit, 1))
    return replace(grid, units=tuple(units))


def _parts(unit: Unit, fit: int) -> list[Unit]:
    """Of about the same size."""
    count = -(-len(unit.seeds) // fit)
    if count == 1:
        return [unit]
    share, more = divmod(len(unit.seeds), count)
    parts, first = [], 0
    for place in range(count):
        seeds = unit.seeds[first : first + share + (place < more)]
        first += len(seeds)
        parts.append(replace(unit, seeds=seeds, part="-seeds-" + "-".join(map(str, seeds))))
    return parts


def _replay_bytes(unit: Unit, options: TrainOptions[Any]) -> float:
    """Of one seed: frames as bytes, and what belongs to a step."""
    channels = 1 if unit.task.startswith("atari:") else 3
    side = options.env.image_size or _IMAGE_SIDE
    episodes = unit.agent_steps // 500
    steps = options.replay.capacity or min(unit.agent_steps + episodes, _LARGEST_REPLAY)
    return steps * (channels * side * side + 44.0)


def _drops_replay(options: TrainOptions[Any]) -> bool:
    return options.keep.replay == "until-done"


def _suite(task: str) -> str:
    return task.partition(":")[0]


@cache
def _known_speeds() -> dict[str, dict[int, float]]:
    """Milliseconds by preset and number of seeds."""
    found: dict[str, dict[int, float]] = {}
    for row in read_table("speed.csv"):
        found.setdefault(row["preset"], {})[int(row["seeds"])] = float(row["milliseconds"])
    return found


def _times_for(seeds: int) -> float:
    """How many times as long a step of so many seeds takes as one of a single seed."""
    known = _known_speeds()["ogspr"]
    below = max(count for count in known if count <= seeds)
    above = min((count for count in known if count >= seeds), default=below)
    if below == above:
        return known[below] / known[1] * seeds / below
    share = (seeds - below) / (above - below)
    return (known[below] + share * (known[above] - known[below])) / known[1]


def _measured(table: Path) -> float | None:
    """Milliseconds of an agent step in the last rows of one process; None if there are too few."""
    try:
        rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))[-20:]
        points = [(float(row["agent_steps"]), float(row["seconds"])) for row in rows]
    except (OSError, KeyError, TypeError, ValueError):
        return None
    rising = [b for a, b in itertools.pairwise(points) if b[1] > a[1] and b[0] > a[0]]
    if len(rising) < len(points) - 1 or len(points) < 3:
        return None  # another process in between: its seconds begin again
    (first_steps, first), (last_steps, last) = points[0], points[-1]
    return 1000.0 * (last - first) / (last_steps - first_steps)


def hours_left(states: Sequence[UnitState], speeds: Speeds) -> float:
    """Of GPU time."""
    return sum((1.0 - state.share) * needs(state.unit, speeds).hours for state in states)
