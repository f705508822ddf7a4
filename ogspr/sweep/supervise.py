"""One unit on the machine where it was scheduled: the same code under every scheduler."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ogspr.records.files import check_file, make_folder
from ogspr.sweep.grid import Unit
from ogspr.sweep.state import (
    SIGN_OF_LIFE,
    SweepFolder,
    UnitState,
    Verdict,
    give_sign,
    note_attempt,
    verdict_of,
)

_GUARD = Path(__file__).with_name("guard.py")
_IN_USE_PATIENCE = 120.0  # seconds: the process before may still be saving
_KILL_AFTER = 600.0  # seconds for a good end: five seeds save some GB
_POLL = 0.2
# What a process finds out about its own machine, and would be wrong for another GPU.
_NOT_INHERITED = ("OGSPR_GL_DECISION", "MUJOCO_EGL_DEVICE_ID")


@dataclass(frozen=True)
class Launch:
    """How the runs of units are started."""

    sweep: SweepFolder
    hang_minutes: float = 30.0
    """Minutes without a new row or checkpoint after which a process is taken to hang."""
    words: tuple[str, ...] = ()
    """More words for `ogspr train`."""
    environment: Mapping[str, str] | None = None
    """More environment variables, such as CUDA_VISIBLE_DEVICES."""

    def command(self, unit: Unit) -> list[str]:
        """What makes a unit, or continues it."""
        return [
            sys.executable,
            "-P",
            "-m",
            "ogspr",
            "train",
            unit.task,
            "--config",
            str(self.sweep.settings(unit)),
            "--preset",
            unit.preset,
            "--seeds",
            *map(str, unit.seeds),
            "--out",
            str(unit.folder),
            *self.words,
        ]


class Supervised:
    """One attempt at a unit: a process behind a guard, watched until it ends."""

    def __init__(self, launch: Launch, state: UnitState) -> None:
        self.unit = state.unit
        self._launch = launch
        self._began = time.time()
        self._sign = 0.0
        self._waited_until = 0.0
        self._asked: float | None = None  # when it was asked to end
        self._hung = False
        self._steps = state.steps
        make_folder(launch.sweep.path)
        self._record = launch.sweep.attempts(self.unit)
        self._log = launch.sweep.log(self.unit)
        check_file(self._record)
        check_file(self._log)
        self._process: subprocess.Popen[bytes] | None = self._start()
        self._pid = self._process.pid
        self._note("begin", steps=self._steps)

    def poll(self) -> Verdict | None:
        """How it ended; None while it runs. To be called often."""
        now = time.time()
        if now - self._sign > SIGN_OF_LIFE:
            self._sign = now
            give_sign(self._record)
        if self._process is None:
            if now < self._waited_until:
                return None
            self._process = self._start()
        code = self._process.poll()
        if code is None:
            self._watch(now)
            return None
        verdict = verdict_of(128 - code if code < 0 else code)
        if verdict == "in use" and now - self._began < _IN_USE_PATIENCE and self._asked is None:
            self._process, self._waited_until = None, now + 1.0
            return None
        if self._hung:
            verdict = "hung"
        self._note("end", verdict=verdict, code=code)
        return verdict

    def ask_to_end(self) -> None:
        """Its runs save and end; `poll` tells when."""
        if self._asked is None:
            self._asked = time.time()
            if self._process is None:  # waits for a lock: there is nothing to save
                self._waited_until = 0.0
            elif self._process.poll() is None:
                self._process.terminate()

    def wait(self, stop: Callable[[], bool] = lambda: False) -> Verdict:
        """Until it has ended, asking it to end where `stop` says so."""
        while (verdict := self.poll()) is None:
            if stop():
                self.ask_to_end()
            time.sleep(_POLL)
        return verdict

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        command = self._launch.command(self.unit)
        with _appended(self._log) as output:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**environment, **(self._launch.environment or {})},
            )

    def _watch(self, now: float) -> None:
        """Ends what hangs, and what does not end although it was asked to."""
        assert self._process is not None
        if self._asked is not None:
            if now - self._asked > _KILL_AFTER:
                self._process.kill()
            return
        changes = [_last_change(self.unit.folder / f"seed-{seed}") for seed in self.unit.seeds]
        silent = now - max(self._began, *changes)
        if silent > 60.0 * self._launch.hang_minutes:
            self._hung = True
            self.ask_to_end()

    def _note(self, event: str, **more: object) -> None:
        about = {"event": event, "time": time.time(), "node": platform.node(), "pid": self._pid}
        note_attempt(self._record, about | more)


def work_through(
    launch: Launch, unit: Unit, stop: Callable[[], bool], report: Callable[[str], None]
) -> UnitState:
    """Makes a unit to its end in this process, with retries: what a node does that has it to itself."""
    while True:
        state = launch.sweep.read(unit)
        now = time.time()
        if state.condition(now) in ("done", "failed") or stop() or launch.sweep.stop_requested:
            return state
        if now < state.ready_at():
            time.sleep(_POLL)
            continue
        report(f"starting {unit.title}")
        verdict = Supervised(launch, state).wait(lambda: stop() or launch.sweep.stop_requested)
        report(f"{unit.title}: {verdict}")
        if verdict == "stopped" and not (stop() or launch.sweep.stop_requested):
            return launch.sweep.read(unit)  # the scheduler ended it


def _last_change(run: Path) -> float:
    """When anything in a run was written last; unix time."""
    latest = 0.0
    for path in (run / "train.csv", run / "episodes.csv", run / "eval.csv", run / "checkpoints"):
        try:
            latest = max(latest, path.stat().st_mtime)
        except OSError:
            continue
    return latest


def _appended(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab")
