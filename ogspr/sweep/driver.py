"""The loop behind `ogspr sweep run`: look at the folders, start what is not done, look again.

It keeps nothing that the folders do not say, so it may be killed at any moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ogspr.sweep.grid import Unit
from ogspr.sweep.state import SweepFolder, UnitState, Verdict
from ogspr.sweep.supervise import Launch, Supervised

_POLL = 0.3


class Launcher(Protocol):
    """Runs units somewhere; knows nothing of grids."""

    def room(self, unit: Unit) -> bool:
        """Whether a unit could start now."""
        ...

    def start(self, state: UnitState) -> None: ...

    def ended(self) -> list[tuple[Unit, Verdict]]:
        """Those that have ended since the last call."""
        ...

    @property
    def busy(self) -> bool:
        """Whether anything it started has not ended yet."""
        ...

    def ask_to_end(self) -> None:
        """All that runs; each saves first."""
        ...


class Local:
    """On this machine: one unit at a time on each GPU, or as many as there are slots without one.

    Args:
        launch: How runs are started.
        slots: CUDA devices by number; None for a slot without a GPU.
    """

    def __init__(self, launch: Launch, slots: Sequence[str | None]) -> None:
        self._launch = launch
        self._free = list(slots)
        self._running: dict[Unit, tuple[Supervised, str | None]] = {}

    def room(self, unit: Unit) -> bool:  # noqa: ARG002 (a unit takes a whole slot)
        return bool(self._free)

    def start(self, state: UnitState) -> None:
        slot = self._free.pop(0)
        environment = {"CUDA_VISIBLE_DEVICES": slot} if slot is not None else None
        self._running[state.unit] = (Supervised(replace(self._launch, environment=environment), state), slot)

    def ended(self) -> list[tuple[Unit, Verdict]]:
        found = [(unit, each.poll()) for unit, (each, _) in self._running.items()]
        over = [(unit, verdict) for unit, verdict in found if verdict is not None]
        for unit, _ in over:
            self._free.append(self._running.pop(unit)[1])
        return over

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def ask_to_end(self) -> None:
        for each, _ in self._running.values():
            each.ask_to_end()


@dataclass
class Outcome:
    """What became of a sweep."""

    states: list[UnitState]
    stopped: bool

    def of(self, condition: str) -> list[UnitState]:
        now = time.time()
        return [state for state in self.states if state.condition(now) == condition]


def drive(
    units: Sequence[Unit],
    launcher: Launcher,
    sweep: SweepFolder,
    *,
    report: Callable[[str], None],
    stop: Callable[[], bool],
    most_hours: Callable[[Unit], float],
) -> Outcome:
    """Until every unit is done or has failed for good, or the end is asked for.

    Args:
        stop: Whether it is asked for; a stop of the sweep by others is seen without.
        most_hours: How long a unit takes: the longest begin first, so that none is left alone in the end.
    """
    order = sorted(units, key=most_hours, reverse=True)
    todo = [state for state in map(sweep.read, order) if state.condition(time.time()) != "done"]
    report(f"{len(units) - len(todo)} of {len(units)} units are done")
    waiting = {state.unit: state for state in todo}
    asked = False
    while waiting or launcher.busy:
        if not asked and (stop() or sweep.stop_requested):
            asked = True
            report("stopping: every run saves first")
            launcher.ask_to_end()
        for unit, verdict in launcher.ended():
            state = sweep.read(unit)
            condition = state.condition(time.time())
            # Running: another process may have it, or its end cannot be seen from here yet.
            if condition in ("waiting", "running") and not asked:
                waiting[unit] = state
            report(_said(state, verdict, condition, sweep))
        if asked:
            if not launcher.busy:
                break
        else:
            _start_what_can(waiting, launcher, sweep, report)
        time.sleep(_POLL)
    return Outcome([sweep.read(unit) for unit in units], asked)


def _start_what_can(
    waiting: dict[Unit, UnitState], launcher: Launcher, sweep: SweepFolder, report: Callable[[str], None]
) -> None:
    """Retries come first: a table's row is complete when its last unit is."""
    now = time.time()
    retried_first = sorted(waiting.values(), key=lambda state: not state.failures)
    for before in retried_first:
        if now < before.ready_at() or not launcher.room(before.unit):
            continue
        state = sweep.read(before.unit)  # others may work through the same grid
        condition = state.condition(now)
        if condition == "running":
            continue
        del waiting[before.unit]
        if condition == "waiting":
            report(f"starting {state.unit.title}" + (f" at {state.share:.0%}" if state.steps else ""))
            launcher.start(state)
        elif condition == "failed":
            report(_said(state, None, condition, sweep))


def _said(state: UnitState, verdict: Verdict | None, condition: str, sweep: SweepFolder) -> str:
    if condition == "done":
        return f"done {state.unit.title}"
    if verdict == "stopped":
        return f"saved {state.unit.title} at {state.share:.0%}"
    log = os.path.relpath(sweep.log(state.unit))
    how = "failed" if condition == "failed" else "will retry"
    return f"{how} {state.unit.title}: {state.reason or verdict}; see {log}"
