"""Units as tasks of a running Ray cluster: Ray finds a node with room, and no more.

What was made, what failed and what is tried again is read from the folders, as everywhere. Ray's own retries
are off: they know nothing of mistakes that stay, and its queue is first come, first served, so that whatever
is handed over too early keeps a unit that has failed waiting.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ogspr.errors import UserError, require_positive
from ogspr.sweep.grid import Unit
from ogspr.sweep.plan import Needs
from ogspr.sweep.state import SILENCE, UnitState, Verdict, note_attempt
from ogspr.sweep.supervise import Launch, Supervised

_PATIENCE = 10.0  # seconds for a head to answer
_COUNT_NODES = 1.0  # seconds between two looks at what nodes there are
_LOOK_FOR_SIGNS = 5.0  # seconds between two looks at the folders of what runs


@dataclass(frozen=True)
class RayOptions:
    """The Ray cluster, and the resources of a unit."""

    address: str = "auto"
    """host:port of the cluster's head; auto: the cluster of this machine."""
    gpus: bool = True
    """Ask for one GPU for each unit."""
    cores: int | None = None
    """CPU cores of a unit. Default: 4, and 2 more for each seed."""

    def check(self) -> None:
        require_positive(**{"ray.cores": self.cores})


class RayCluster:
    """Runs each unit as a task on some node of a cluster.

    Args:
        launch: How runs are started; its folders must be the same on all nodes.
        needs: What a unit takes.
        report: Hears what a user should know.
        silence: Seconds without a sign of life after which a node counts as gone. Ray itself takes minutes to
            notice that one hangs.
    """

    def __init__(
        self,
        launch: Launch,
        options: RayOptions,
        needs: Callable[[Unit], Needs],
        report: Callable[[str], None],
        silence: float = SILENCE,
    ) -> None:
        self._ray = _connected(options, report)
        self._launch = launch
        self._options = options
        self._needs = needs
        self._report = report
        self._silence = silence
        self._looked = 0.0
        self._counted = -_COUNT_NODES - 1.0
        self._known_nodes: list[dict[str, Any]] = []
        self._waits_for_node = False
        self._running: dict[Any, UnitState] = {}
        # The worker may stay: what uses the GPU is a process of its own, and ends.
        self._task = self._ray.remote(max_retries=0, max_calls=0)(make_attempt)

    def room(self, unit: Unit) -> bool:
        """Whether a node could begin it now; one unit may wait, so that a cluster that grows hears of it."""
        cores = self._cores(unit)
        fit = sum(self._fits(node["Resources"], cores) for node in self._nodes() if node["Alive"])
        if fit == 0 and not self._waits_for_node:
            what = f"{cores} cores" + (" and a GPU" if self._options.gpus else "")
            self._report(f"no node of the cluster has {what}: waiting for one that has")
        self._waits_for_node = fit == 0
        return len(self._running) < max(fit, 1)

    def start(self, state: UnitState) -> None:
        cores = self._cores(state.unit)
        task = self._task.options(
            num_cpus=cores, num_gpus=1 if self._options.gpus else 0, name=f"ogspr {state.unit.id}"
        )
        reference = task.remote(self._launch, state.unit, str(Path.cwd()))
        self._running[reference] = state

    def ended(self) -> list[tuple[Unit, Verdict]]:
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        over = [(self._running.pop(each), self._verdict(each)) for each in ready] + self._silent()
        for handed, verdict in over:
            if verdict in ("lost", "crashed"):
                self._note_end(handed, verdict)
        return [(handed.unit, verdict) for handed, verdict in over]

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def ask_to_end(self) -> None:
        """By the file that `ogspr sweep stop` makes: a node sees it wherever it is, and before it begins."""
        self._launch.sweep.stop.touch()
        for reference, handed in self._running.items():
            if not self._begun(handed):
                self._ray.cancel(reference)

    def _nodes(self) -> list[dict[str, Any]]:
        """As they were a moment ago: a loop over thousands of units asks for each."""
        now = time.monotonic()
        if now - self._counted > _COUNT_NODES:
            self._counted, self._known_nodes = now, self._ray.nodes()
        return self._known_nodes

    def _cores(self, unit: Unit) -> int:
        return self._options.cores or self._needs(unit).cores

    def _fits(self, resources: dict[str, float], cores: int) -> int:
        """How many units a node has room for when nothing else runs there."""
        by_cores = int(resources.get("CPU", 0) // cores)
        return min(by_cores, int(resources.get("GPU", 0))) if self._options.gpus else by_cores

    def _begun(self, handed: UnitState) -> bool:
        return len(self._launch.sweep.read(handed.unit).attempts) > len(handed.attempts)

    def _verdict(self, reference: Any) -> Verdict:
        """Of a task that is over."""
        from ray.exceptions import RayError, RayTaskError, TaskCancelledError

        try:
            verdict: Verdict = self._ray.get(reference)
        except TaskCancelledError:
            return "stopped"
        except RayTaskError as error:
            self._report(f"a task has failed: {str(error).strip().splitlines()[-1]}")
            return "crashed"
        except RayError:  # its worker, its raylet or its node
            return "lost"
        return verdict

    def _silent(self) -> list[tuple[UnitState, Verdict]]:
        """Tasks on nodes that hang, which are not waited for any longer.

        Should such a node come back, the lock of the run keeps the two apart until the first has saved.
        """
        now = time.time()
        if now - self._looked < _LOOK_FOR_SIGNS:
            return []
        self._looked = now
        found: list[tuple[UnitState, Verdict]] = []
        for reference, handed in list(self._running.items()):
            state = self._launch.sweep.read(handed.unit)
            begun = len(state.attempts) > len(handed.attempts)
            if begun and state.attempts[-1].ended is None and now - state.last_sign > self._silence:
                self._ray.cancel(reference)
                found.append((self._running.pop(reference), "lost"))
        return found

    def _note_end(self, handed: UnitState, verdict: Verdict) -> None:
        """In the place of whoever watched over the unit; counted, so that no unit is tried for ever."""
        state = self._launch.sweep.read(handed.unit)
        path = self._launch.sweep.attempts(handed.unit)
        now = time.time()
        if len(state.attempts) == len(handed.attempts):
            begin = {"event": "begin", "time": now, "node": platform.node(), "pid": 0, "steps": state.steps}
            note_attempt(path, begin)
            state = self._launch.sweep.read(handed.unit)
        last = state.attempts[-1]
        if last.ended is None:
            end = {"event": "end", "time": now, "node": last.node, "pid": last.pid, "verdict": verdict}
            note_attempt(path, end)


def make_attempt(launch: Launch, unit: Unit, folder: str) -> Verdict:
    """One attempt at a unit; runs in a worker of Ray.

    Args:
        folder: Where `sweep run` was called: what is named in relation to it is found on every node.
    """
    if not Path(folder).is_dir():
        raise UserError(f"{platform.node()} has no {folder}: nodes must share the file system of the sweep.")
    os.chdir(folder)
    supervised = None
    try:
        if launch.sweep.stop_requested:
            return "stopped"
        supervised = Supervised(launch, launch.sweep.read(unit))
        return supervised.wait(lambda: launch.sweep.stop_requested)
    except KeyboardInterrupt:  # so Ray cancels tasks
        if supervised is None:
            os._exit(1)  # should a run have begun already, its guard notices
        supervised.ask_to_end()
        return supervised.wait()


def _connected(options: RayOptions, report: Callable[[str], None]) -> Any:
    """Ray, with a connection to a cluster that exists: none is ever started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; pip install 'ogspr[ray]' adds it.") from None
    _check_reachable(options.address)
    try:
        ray.init(address=options.address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"no Ray cluster answers at {options.address}: {reason}") from None
    if os.environ.get("RAY_AUTH_MODE") != "token":
        report(
            "warning: without RAY_AUTH_MODE=token, whoever reaches a port of the cluster can run code there"
        )
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}: {error}") from None
