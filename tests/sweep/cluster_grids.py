"""Tiny grids for tests on clusters, and what may be asked of them afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ogspr.sweep.grid import Grid, Unit, read_grid
from ogspr.sweep.state import SweepFolder, UnitState
from tests.helpers.trajectories import ROOT
from tests.sweep.grids import TABLES, write_grid

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
_OPTIONS = """
agent_steps = 120
log_every = 5
workers = false
agent.random_steps = 20
agent.batch_size = 4
env.image_size = 36
env.action_repeat = 1
evaluation.every = 60
evaluation.episodes = 1
evaluation.environments = 1
keep.tensorboard = false
keep.checkpoint_minutes = 0.01

[cells.options.agent.sizes]
encoder_channels = 4
features = 16
latent = 16
representation = 16
state_action_hidden = 16
value_hidden = 16
policy_hidden = 16
"""
_T = TypeVar("_T")


def tiny_grid(folder: Path, names: Sequence[str], seeds: Sequence[int] = (1, 2)) -> Grid:
    """Units that are the same but for their names, so that one undisturbed run is the reference of all."""
    return read_grid(str(write_grid(folder, names=names, seeds=seeds, options=_OPTIONS)))


def sweep(*words: str, before: Sequence[str] = (), **more: str) -> subprocess.CompletedProcess:
    """`ogspr sweep` in a process of its own; `before` stands in front of the command."""
    return subprocess.run(
        [*before, sys.executable, "-P", "-m", "ogspr", "sweep", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT | more,
        timeout=300,
    )


def tables_of(unit: Unit) -> dict[str, bytes]:
    """What must not depend on what happened to a run."""
    return {
        f"{seed}/{name}": (unit.folder / f"seed-{seed}" / name).read_bytes()
        for seed in unit.seeds
        for name in TABLES
    }


def state_of(grid: Grid, unit: Unit) -> UnitState:
    return SweepFolder(grid.out).read(unit)


def wait_until(condition: Callable[[], _T], seconds: float, what: str) -> _T:
    """What the condition says once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)
    return found


def learning(grid: Grid, *units: Unit) -> Callable[[], bool]:
    """Whether every unit has a checkpoint that is worth keeping, and is not about to be done."""

    def reached() -> bool:
        states = [state_of(grid, unit) for unit in units]
        assert not any(state.finished for state in states), "too fast to be disturbed"
        return all(state.steps >= 30 * len(state.unit.seeds) for state in states)

    return reached


# --- processes -------------------------------------------------------------------------------------------


def command_lines() -> dict[int, list[str]]:
    """Of all processes that live; zombies have none."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if any(words):
                    found[int(entry.name)] = words
    return found


def runs_in(folder: Path) -> list[int]:
    """Processes that train below a folder, without those that watch over them."""
    return [
        pid
        for pid, words in command_lines().items()
        if "train" in words and "--out" in words and _below(words[words.index("--out") + 1], folder)
        if not any(word.endswith("guard.py") for word in words)
    ]


def everything_in(folder: Path) -> list[int]:
    """Processes whose command names anything below a folder."""
    return [
        pid for pid, words in command_lines().items() if any(_below(word, folder) for word in words if word)
    ]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tree_below(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for one in command_lines():
        with suppress(OSError):
            children.setdefault(parent_of(one), []).append(one)
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def one_writer(grid: Grid) -> Iterator[None]:
    """Fails if two processes have the table of one run open at a time, or any process is left in the end."""
    found: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            writers: dict[str, list[int]] = {}
            for pid in runs_in(grid.out):
                for path in _open_tables(pid):
                    writers.setdefault(path, []).append(pid)
            found.extend(f"{path}: {pids}" for path, pids in writers.items() if not _one_alone(pids))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not found, found
    wait_until(lambda: not everything_in(grid.out.parent), 15, "no process is left")


def _one_alone(pids: Sequence[int]) -> bool:
    """Programs that a run starts look like it for a moment, between fork and exec."""
    with suppress(OSError):
        return sum(parent_of(pid) not in pids for pid in pids) == 1
    return True


def _open_tables(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                path = str(link.readlink())
                if path.endswith("train.csv"):
                    found.append(path)
    return found


def _below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")
