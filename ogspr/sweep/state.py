"""How far a sweep is, read from its folders alone: those of its runs, and `sweep/` next to them.

runs/sweep/<unit>.jsonl     attempts: when, where, how each ended; its time of change is a sign of life
runs/sweep/<unit>.log       what the runs printed
runs/sweep/<unit>.json      the settings of its runs
runs/sweep/stop             a stop was requested
runs/sweep/started          when `sweep run` was called last: failures before it are forgiven
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ogspr.errors import InUse, UserError
from ogspr.records.checkpoints import progress_of
from ogspr.records.files import make_inner_folder, write_atomic
from ogspr.records.settings_io import plain
from ogspr.sweep.grid import Unit

Verdict = Literal["done", "stopped", "in use", "mistake", "diverged", "disk", "crashed", "hung", "lost"]
Condition = Literal["done", "running", "waiting", "failed"]
FINAL: tuple[Verdict, ...] = ("mistake", "diverged")  # trying again cannot help
_FORGIVEN: tuple[Verdict, ...] = ("done", "stopped", "in use")  # not counted as failures
MOST_FAILURES = 5  # in a row, without a new checkpoint
_PAUSES = (0.0, 10.0, 60.0, 300.0)  # seconds before the next attempt, by the number of failures
SIGN_OF_LIFE = 10.0  # seconds between two
SILENCE = 90.0  # seconds without one: whoever watched over the unit is gone


def verdict_of(code: int) -> Verdict:
    """What the exit code of `ogspr train` says."""
    stopped = (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP)
    known: dict[int, Verdict] = {
        0: "done",
        UserError.exit_code: "mistake",
        3: "diverged",
        os.EX_IOERR: "disk",
        InUse.exit_code: "in use",
        **dict.fromkeys(stopped, "stopped"),
    }
    return known.get(code, "crashed")


@dataclass(frozen=True)
class Attempt:
    """One process that made a unit, or still does."""

    began: float  # unix time
    node: str
    pid: int
    steps: int  # agent steps of all seeds that checkpoints held as it began
    ended: float | None = None
    verdict: Verdict | None = None
    code: int | None = None


@dataclass(frozen=True)
class UnitState:
    """One unit as its folders show it."""

    unit: Unit
    steps: int  # agent steps of all seeds that checkpoints hold
    finished: bool
    attempts: tuple[Attempt, ...] = ()
    last_sign: float = 0.0  # unix time
    forgiven_before: float = 0.0  # failures before it do not count

    @property
    def share(self) -> float:
        """Of its agent steps, by its checkpoints."""
        return 1.0 if self.finished else self.steps / (self.unit.agent_steps * len(self.unit.seeds))

    @property
    def failures(self) -> list[Attempt]:
        """Those in a row without a new checkpoint."""
        found: list[Attempt] = []
        for attempt in reversed(self.attempts):
            if attempt.began < self.forgiven_before:
                break
            if attempt.verdict in _FORGIVEN or attempt.verdict is None:
                continue
            if attempt.steps < self.steps and found:  # it, or one after it, has moved on
                break
            found.append(attempt)
        return found

    def condition(self, now: float) -> Condition:
        if self.finished:
            return "done"
        if self.running(now):
            return "running"
        failures = self.failures
        given_up = any(each.verdict in FINAL for each in failures[:1]) or len(failures) >= MOST_FAILURES
        return "failed" if given_up else "waiting"

    def running(self, now: float) -> bool:
        """As far as can be told from here: a process on this machine, or a sign of life from another."""
        if not self.attempts or self.attempts[-1].ended is not None:
            return False
        last = self.attempts[-1]
        if last.node == platform.node() and not _alive(last.pid):
            return False
        return now - self.last_sign < SILENCE

    def ready_at(self) -> float:
        """Unix time of the next attempt."""
        failures = self.failures
        pause = _PAUSES[min(len(failures), len(_PAUSES)) - 1] if failures else 0.0
        return (failures[0].ended or 0.0) + pause if failures else 0.0

    @property
    def reason(self) -> str:
        """Why it failed last, in words."""
        failures = self.failures
        if not failures:
            return ""
        last = failures[0]
        words = {
            "mistake": "its settings are refused",
            "diverged": "its numbers became non-finite",
            "disk": "a disk is full or fails",
            "hung": "it stopped making progress",
            "lost": f"{last.node} is gone",
        }
        text = words.get(last.verdict or "", f"exit code {last.code}")
        return text if len(failures) == 1 else f"{text} ({len(failures)} attempts)"


class SweepFolder:
    """Names of what a sweep keeps next to its runs."""

    def __init__(self, out: Path) -> None:
        self.path = out / "sweep"
        self.stop = self.path / "stop"
        self._started = self.path / "started"

    def log(self, unit: Unit) -> Path:
        return self.path / f"{unit.id}.log"

    def settings(self, unit: Unit) -> Path:
        return self.path / f"{unit.id}.json"

    def attempts(self, unit: Unit) -> Path:
        return self.path / f"{unit.id}.jsonl"

    def begin(self, units: Iterable[Unit]) -> None:
        """For `sweep run`: forgets a stop and earlier failures, and writes what the runs are started with."""
        make_inner_folder(self.path)
        self.stop.unlink(missing_ok=True)
        write_atomic(self._started, f"{time.time()}\n".encode())
        for unit in units:
            content = {"preset": unit.preset, **plain(unit.options)}
            write_atomic(self.settings(unit), (json.dumps(content, indent=2) + "\n").encode())

    @property
    def started(self) -> float:
        """Unix time of the last `sweep run`; 0 before the first."""
        try:
            return float(self._started.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0

    @property
    def stop_requested(self) -> bool:
        return self.stop.exists()

    def read(self, unit: Unit) -> UnitState:
        steps, finished = 0, True
        for seed in unit.seeds:
            found = progress_of(unit.folder / f"seed-{seed}")
            steps += found.agent_steps
            finished = finished and found.finished and found.agent_steps >= unit.agent_steps
        path = self.attempts(unit)
        try:
            last_sign, text = path.stat().st_mtime, path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return UnitState(unit, steps, finished)
        return UnitState(unit, steps, finished, tuple(_attempts(text)), last_sign, self.started)


def note_attempt(path: Path, event: Mapping[str, Any]) -> None:
    """One line, whole or not at all: several machines may append to files of one folder."""
    line = (json.dumps(event) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def give_sign(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


def last_line(path: Path) -> str:
    """Of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(letter for letter in text if letter.isprintable())


def _attempts(text: str) -> Sequence[Attempt]:
    found: list[Attempt] = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
            if event["event"] == "begin":
                if found and found[-1].ended is None:  # whoever watched over it was killed, too
                    found[-1] = _ended(found[-1], event["time"], "lost", None)
                found.append(
                    Attempt(float(event["time"]), str(event["node"]), int(event["pid"]), int(event["steps"]))
                )
            elif (place := _place(found, event)) is not None:
                found[place] = _ended(found[place], event["time"], event["verdict"], event.get("code"))
        except (KeyError, TypeError, ValueError):
            continue  # half a line of a machine that went away
    return found


def _place(found: Sequence[Attempt], event: Mapping[str, Any]) -> int | None:
    """Which attempt an end belongs to: a node that hung may come back while another one makes the unit."""
    whose = event["node"], event.get("pid")
    places = range(len(found) - 1, -1, -1)
    return next((p for p in places if whose[1] is None or (found[p].node, found[p].pid) == whose), None)


def _ended(attempt: Attempt, when: Any, verdict: Verdict, code: int | None) -> Attempt:
    return Attempt(attempt.began, attempt.node, attempt.pid, attempt.steps, float(when), verdict, code)


def _alive(pid: int) -> bool:
    """Zombies are not: they may never be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] not in "ZX"
