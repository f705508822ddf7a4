"""Runs of seconds in a tiny world, for tests of how they are saved, killed and resumed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ogspr.agents.ogspr import Sizes, preset
from ogspr.envs import EnvOptions
from ogspr.records.checkpoints import Checkpoints
from ogspr.records.run import RunFolder
from ogspr.training.options import ComputeOptions, EvaluationOptions, KeepOptions, TrainOptions
from ogspr.training.run import Listener, Request
from ogspr.training.session import Session
from ogspr.training.signals import StopRequest

TASK = "tests.helpers.worlds:drift"
TABLES = ("train.csv", "episodes.csv", "eval.csv")


def tiny_options(**changes) -> TrainOptions:
    config = replace(
        preset("ogspr"),
        sizes=Sizes(4, 16, 16, 16, 16, 16, 16, 8, (8, 8, 8)),
        batch_size=4,
        random_steps=30,
        target_period=20,
        shift_pad=2,
    )
    options = TrainOptions(
        agent=config,
        agent_steps=150,
        log_every=20,
        workers=False,
        env=EnvOptions(image_size=36),
        evaluation=EvaluationOptions(every=50, episodes=3, environments=2, overlap=True),
        compute=ComputeOptions(device="cpu", threads=1),
        keep=KeepOptions(checkpoint_minutes=100.0),
    )
    return replace(options, **changes)


# Of runs that are made longer, or looked at with their replay, after their end.
KEEP_REPLAY = KeepOptions(checkpoint_minutes=100.0, replay="always")


def request(folder: Path, seeds=(0,), **changes) -> Request:
    allow = changes.pop("allow_changes", False)
    folders = tuple(folder / f"seed-{seed}" for seed in seeds)
    return Request(changes.pop("task", TASK), "ogspr", tuple(seeds), tiny_options(**changes), folders, allow)


class Recorder(Listener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def train(wanted: Request, audience: Listener | None = None, stop: StopRequest | None = None) -> Session:
    session = Session(wanted, audience or Listener(), stop or StopRequest())
    session.run()
    return session


def train_in_child(wanted: Request, stop: StopRequest | None = None) -> int:
    """Starts a training process; its process id. Forked, so that it need not import everything again."""
    child = os.fork()
    if child:
        return child
    try:
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            train(wanted, stop=stop)
        os._exit(0)
    except BaseException:
        os._exit(1)


def exit_code(child: int) -> int:
    """Waits; negative where a signal ended it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)


@contextmanager
def disk_of(place: Path, size: str) -> Iterator[Path]:
    """A file system of that size in a new folder; the test is skipped where none can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def final_state(folder: Path) -> dict:
    """What the newest checkpoint holds."""
    problems: list[str] = []
    found = Checkpoints(RunFolder(folder), 2).newest(problems.append)
    assert not problems
    return found.state()


def assert_same(ours, theirs, path: str = "") -> None:
    """Two trees of JSON values and arrays, to the bit."""
    assert type(ours) is type(theirs), path
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), path
        for name in ours:
            assert_same(ours[name], theirs[name], f"{path}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), path
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{path}[{place}]")
    elif isinstance(ours, np.ndarray):
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), path
    else:
        assert ours == theirs, path


def assert_same_run(ours: Path, theirs: Path) -> None:
    """Weights, optimisers, replay, environments, csv files and policies."""
    for name in TABLES:
        assert (ours / name).read_text() == (theirs / name).read_text(), name
    for name in ("best", "last"):
        policies = [path / "policies" / f"{name}.safetensors" for path in (ours, theirs)]
        assert policies[0].read_bytes() == policies[1].read_bytes()
    assert_same(final_state(ours), final_state(theirs))
