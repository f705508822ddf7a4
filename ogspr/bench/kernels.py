"""`ogspr bench kernels`: what the device does during an update, kernel by kernel.

A trace of some updates, run as training runs them. Kernels of branches overlap, so that their times add up to
more than the device was busy; how long it was busy is counted once, and what is left of the update's time it
was idle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from ogspr.bench.hardware import hardware_line
from ogspr.bench.options import KernelBench
from ogspr.bench.update import Contender, Plan, ready_learners, timed_rounds, update_of_all, usual_plan
from ogspr.bench.work import wait
from ogspr.errors import require_positive
from ogspr.records.files import check_csv, write_csv
from ogspr.train.device import ready_device

_SHOWN = 12  # kernels in the table; the csv has them all
# The first that fits: compiled kernels carry the names of everything that was fused into them.
_KINDS = {
    "compiled": r"^triton_",
    "first layer": r"^_(forward|backward)_kernel",
    "convolution": r"conv|cudnn|fprop|dgrad|wgrad|nchw|nhwc",
    "product": r"gemm|gemv|cutlass|nvjet|splitk|mm\b|linear",
    "copy": r"memcpy|memset|copy_",
}


@dataclass(frozen=True)
class Kernel:
    """A kernel (without a GPU: an operation of torch), in one update of every learner."""

    name: str
    calls: float
    microseconds: float

    @property
    def kind(self) -> str:
        return next((kind for kind, words in _KINDS.items() if re.search(words, self.name, re.I)), "other")


@dataclass(frozen=True)
class Trace:
    """One update of every learner."""

    kernels: tuple[Kernel, ...]  # the most expensive first
    milliseconds: float  # from the start of an update to that of the next, without the profiler
    busy: float | None  # milliseconds of it in which a GPU did something

    def by_kind(self) -> dict[str, Kernel]:
        """Sums, the most expensive first."""
        sums = {
            kind: summed(kind, [kernel for kernel in self.kernels if kernel.kind == kind])
            for kind in {kernel.kind for kernel in self.kernels}
        }
        return dict(sorted(sums.items(), key=lambda item: -item[1].microseconds))


def bench_kernels(bench: KernelBench, *, out: Path | None, console: Console) -> Trace:
    """Traces updates; prints the kinds of kernels and the most expensive ones, and writes all as csv."""
    require_positive(updates=bench.updates)
    if out is not None:
        check_csv(out)
    device = ready_device()
    updates = bench.updates or (20 if device.type == "cuda" else 2)
    planned = replace(usual_plan(bench, device), updates=updates)
    hardware = hardware_line(device)
    console.print(hardware)
    (contender,) = planned.contenders
    with (
        console.status(f"tracing {contender}"),
        ready_learners(planned, contender, console.print) as learners,
    ):
        trace = _traced(update_of_all(learners), planned, contender)
    busy = "" if trace.busy is None else f", the GPU busy for {trace.busy:.2f} of them"
    console.print(f"{contender}: {trace.milliseconds:.2f} ms an update of every learner{busy}")
    console.print(_table("kind", trace.by_kind().values()))
    console.print(_table("kernel", trace.kernels[:_SHOWN]))
    if out is not None:
        _write(out, bench, contender, trace, hardware)
        console.print(f"written {out}")
    return trace


def _traced(update: Callable[[], None], planned: Plan, contender: Contender) -> Trace:
    (milliseconds,) = timed_rounds(update, planned, contender.execution)
    count, on_gpu = planned.updates, planned.device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        for _ in range(count):
            update()
        wait(planned.device)
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in profiler.events():
        if on_gpu == (event.device_type.name == "CUDA"):
            begin = event.time_range.start
            took = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
            spans[event.name].append((begin, begin + took))
    kernels = [
        Kernel(name, len(each) / count, sum(end - begin for begin, end in each) / count)
        for name, each in spans.items()
    ]
    kernels.sort(key=lambda kernel: -kernel.microseconds)
    busy = covered([span for each in spans.values() for span in each]) / 1000.0 / count
    return Trace(tuple(kernels), milliseconds, busy if on_gpu else None)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of what at least one of the spans covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def summed(name: str, kernels: Sequence[Kernel]) -> Kernel:
    return Kernel(
        name, sum(kernel.calls for kernel in kernels), sum(kernel.microseconds for kernel in kernels)
    )


def _table(title: str, kernels: Iterable[Kernel]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("calls", justify="right")
    table.add_column("us", justify="right")
    table.add_column(title, overflow="ellipsis", no_wrap=True)
    for kernel in kernels:
        table.add_row(f"{kernel.calls:g}", f"{kernel.microseconds:.0f}", kernel.name)
    return table


def _write(path: Path, bench: KernelBench, contender: Contender, trace: Trace, hardware: str) -> None:
    header = (
        *("preset", "suite", "batch_size", "mode", "precision", "learners"),
        *("milliseconds", "busy", "kind", "kernel", "calls", "microseconds", "hardware"),
    )
    rows = [
        (
            bench.preset,
            bench.suite,
            contender.batch_size,
            contender.execution.mode,
            contender.execution.precision,
            contender.learners,
            f"{trace.milliseconds:.4f}",
            "" if trace.busy is None else f"{trace.busy:.4f}",
            kernel.kind,
            kernel.name,
            f"{kernel.calls:g}",
            f"{kernel.microseconds:.3f}",
            hardware,
        )
        for kernel in trace.kernels
    ]
    write_csv(path, header, rows)
