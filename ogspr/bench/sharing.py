"""`ogspr bench sharing`: what updates and drawing cost each other on one machine.

Updates run in this process, frames of a task are drawn in others, each as fast as it can: alone, and at the
same time. Two that take turns reach together what one of them reaches alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ogspr.bench.env import draw_contender, hardware_that_draws
from ogspr.bench.hardware import hardware_line
from ogspr.bench.options import SharingBench
from ogspr.bench.update import ready_learners, update_of_all, usual_plan
from ogspr.bench.work import wait
from ogspr.envs import launch
from ogspr.errors import UserError, require_positive
from ogspr.records.files import check_csv, write_csv
from ogspr.train.device import ready_device

_WARM_UP = 5  # updates: compilation, capture
_SETTLE_SECONDS = 0.2  # between a change of who is at work and the measurement
_READY_SECONDS = 120.0
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class SharingResult:
    """So many processes that draw, with or without updates beside them."""

    drawers: int
    updating: bool
    updates_a_second: float
    frames_a_second: float  # of all processes
    together: float | None = None  # of both: each as a share of what it reaches alone, added up


def bench_sharing(
    task: str, bench: SharingBench, *, out: Path | None, console: Console
) -> list[SharingResult]:
    """Measures; prints a table and writes it as csv."""
    require_positive(**{f"drawers_{i}": count for i, count in enumerate(bench.drawers)})
    if bench.seconds <= 0:
        raise UserError(f"seconds must be above 0, got {bench.seconds}.")
    if not task.startswith("dmc:"):
        raise UserError(f"{task} is not drawn by OpenGL; name one that is, like dmc:cheetah-run.")
    if out is not None:
        check_csv(out)
    launch(task, seed=0, worker=False).close()  # a misspelt name is found before anything is measured
    device = ready_device()
    planned = usual_plan(bench, device)
    hardware = f"{hardware_line(device)}; drawn by {hardware_that_draws()}"
    console.print(hardware)
    (contender,) = planned.contenders
    with ready_learners(planned, contender, console.print) as learners:
        update = update_of_all(learners)

        def whole_update() -> None:
            update()
            wait(device)

        with console.status("the first updates"):
            for _ in range(_WARM_UP):
                whole_update()
        results = _measured(task, bench, whole_update, console)
    console.print(_table(results))
    if out is not None:
        _write(out, task, bench, results, hardware)
        console.print(f"written {out}")
    return results


def _measured(
    task: str, bench: SharingBench, update: Callable[[], None], console: Console
) -> list[SharingResult]:
    with console.status("updates alone"):
        alone = _measure(bench.seconds, update, [])
    results = [alone]
    for count in bench.drawers:
        with console.status(f"{count} processes that draw"), _drawers(task, count) as frames:
            drawing = _measure(bench.seconds, None, frames)
            both = _measure(bench.seconds, update, frames)
        together = both.updates_a_second / alone.updates_a_second
        together += both.frames_a_second / drawing.frames_a_second
        results += [drawing, replace(both, together=together)]
    return results


def _measure(seconds: float, update: Callable[[], None] | None, frames: Sequence[Any]) -> SharingResult:
    """Counts what is done in so many seconds, or in the one update that takes longer."""
    time.sleep(_SETTLE_SECONDS)
    updates, drawn, start = 0, _total(frames), time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        if update is None:
            time.sleep(seconds - took)
        else:
            update()
            updates += 1
    drawn = _total(frames) - drawn
    return SharingResult(len(frames), update is not None, updates / took, drawn / took)


def _total(frames: Sequence[Any]) -> int:
    return sum(each.value for each in frames)


@contextlib.contextmanager
def _drawers(task: str, count: int) -> Iterator[list[Any]]:
    """So many processes at work; yields how many frames each has drawn."""
    context = multiprocessing.get_context("spawn")
    frames = [context.Value("L", 0) for _ in range(count)]
    children = [context.Process(target=_draw, args=(task, each), daemon=True) for each in frames]
    try:
        for child in children:
            child.start()
        _wait_until_all_draw(children, frames)
        yield frames
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join(_CLOSE_SECONDS)
            child.kill()


def _wait_until_all_draw(children: Sequence[Any], frames: Sequence[Any]) -> None:
    end = time.monotonic() + _READY_SECONDS
    while not all(each.value for each in frames):
        if not all(child.is_alive() for child in children) or time.monotonic() > end:
            raise UserError("a process that should draw does not; its message is above, or see ogspr doctor.")
        time.sleep(0.05)


def _draw(task: str, frames: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    contender = draw_contender(task)
    while True:
        contender.run(1)
        with frames.get_lock():
            frames.value += 1


def _table(results: Sequence[SharingResult]) -> Table:
    title = "together: shares of what each reaches alone, added up; 1: by turns, 2: side by side"
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for heading in ("processes that draw", "updates a second", "frames a second", "together"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            str(result.drawers),
            f"{result.updates_a_second:.1f}" if result.updating else "",
            f"{result.frames_a_second:.1f}" if result.drawers else "",
            "" if result.together is None else f"{result.together:.2f}",
        )
    return table


def _write(
    path: Path, task: str, bench: SharingBench, results: Sequence[SharingResult], hardware: str
) -> None:
    header = ("task", "preset", "drawers", "updates_a_second", "frames_a_second", "together", "hardware")
    rows = [
        (
            task,
            bench.preset,
            result.drawers,
            f"{result.updates_a_second:.2f}" if result.updating else "",
            f"{result.frames_a_second:.2f}" if result.drawers else "",
            "" if result.together is None else f"{result.together:.3f}",
            hardware,
        )
        for result in results
    ]
    write_csv(path, header, rows)
