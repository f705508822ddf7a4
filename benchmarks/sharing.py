"""`python -m benchmarks sharing`: what updates and rendering cost each other on one machine.

Updates run in this process, frames of a task are rendered in others, each as fast as it can: alone, and at
the same time. Two that take turns reach together what one of them reaches alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.commands import Sharing
from benchmarks.env import DRAW, Child, served
from benchmarks.harness import Report, hardware
from benchmarks.learners import as_in_training, ready_learners, whole_update
from ogspr.device import prepared_device
from ogspr.envs import launch
from ogspr.errors import UserError, require_positive

_WARM_UP = 5  # updates: compilation, capture
_TITLE = "together: share of what each reaches alone, added up; 1: they take turns, 2: side by side"


@dataclass(frozen=True)
class SharingResult:
    """A number of processes that render, with or without updates at the same time."""

    task: str
    preset: str
    drawers: int
    updates_a_second: float | None
    frames_a_second: float | None  # of all processes
    together: float | None = None


def measure(wanted: Sharing, report: Report) -> list[SharingResult]:
    require_positive(**{f"drawers_{i}": count for i, count in enumerate(wanted.drawers)})
    if wanted.seconds <= 0:
        raise UserError(f"seconds must be above 0, got {wanted.seconds}.")
    if not wanted.task.startswith("dmc:"):
        raise UserError(f"{wanted.task} is not rendered by OpenGL; name one that is, like dmc:cheetah-run.")
    launch(wanted.task, seed=0, worker=False).close()  # finds misspelt names before anything is measured
    device = prepared_device()
    contender = as_in_training(wanted, device)
    report.begin(hardware(device, renders=True))
    with ready_learners(contender, device, report.console.print) as learners:
        update = whole_update(learners)

        def update_and_wait() -> None:
            update()
            device.synchronize()

        with report.console.status("the first updates"):
            for _ in range(_WARM_UP):
                update_and_wait()
        results = _measured(wanted, update_and_wait, report)
    rows = [asdict(result) for result in results]
    report.save(rows)
    headings = {"drawers": "drawers", "updates_a_second": "updates/s", "frames_a_second": "frames/s"}
    report.show(rows, {**headings, "together": "together"}, _TITLE)
    return results


def _measured(wanted: Sharing, update: Callable[[], None], report: Report) -> list[SharingResult]:
    with report.console.status("updates alone"):
        alone = _measure(wanted, update, [])
    results = [alone]
    for count in wanted.drawers:
        with (
            report.console.status(f"{count} processes that render"),
            served(wanted.task, [DRAW] * count) as children,
        ):
            for child in children:  # all have to be built before any is measured
                child.result()
            rendering = _measure(wanted, None, children)
            both = _measure(wanted, update, children)
        shares = [
            getattr(both, name) / getattr(by_itself, name)
            for name, by_itself in (("updates_a_second", alone), ("frames_a_second", rendering))
        ]
        results += [rendering, replace(both, together=sum(shares))]
    return results


def _measure(wanted: Sharing, update: Callable[[], None] | None, children: Sequence[Child]) -> SharingResult:
    """Counts what is done during the wanted seconds, or during the one update that takes longer."""
    for child in children:
        child.begin(seconds=wanted.seconds)
    updates, start = 0, time.perf_counter()
    while update and time.perf_counter() - start < wanted.seconds:
        update()
        updates += 1
    took = time.perf_counter() - start
    frames = [1.0 / child.result() for child in children]
    return SharingResult(
        wanted.task,
        wanted.preset,
        len(children),
        updates_a_second=updates / took if update else None,
        frames_a_second=sum(frames) if frames else None,
    )
