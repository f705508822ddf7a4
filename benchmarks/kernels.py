"""`python -m benchmarks kernels`: what the device does during an update, kernel by kernel.

A trace of some updates, run as in training. Kernels of branches overlap, so their times add up to more than
the time during which the device is busy; `busy` counts that once, and for the rest of the update it is idle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from torch.profiler import ProfilerActivity, profile

from benchmarks.commands import Kernels
from benchmarks.harness import Report, hardware
from benchmarks.learners import Contender, as_in_training, ready_learners, update_rounds, whole_update
from ogspr.device import Device, prepared_device
from ogspr.errors import require_positive

_SHOWN = 12  # kernels in the table; the csv file has them all
_NAME_LENGTH = 60
# The first that matches: compiled kernels carry the names of everything that was fused into them.
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

    kernel: str
    calls: float
    microseconds: float

    @property
    def kind(self) -> str:
        return next((kind for kind, words in _KINDS.items() if re.search(words, self.kernel, re.I)), "other")


@dataclass(frozen=True)
class Trace:
    """One update of every learner."""

    kernels: tuple[Kernel, ...]  # the most expensive first
    milliseconds: float  # from the start of one update to that of the next, without the profiler
    busy: float | None  # milliseconds of it during which a GPU is busy

    def by_kind(self) -> dict[str, Kernel]:
        """Sums, the most expensive first."""
        sums = {
            kind: summed(kind, [kernel for kernel in self.kernels if kernel.kind == kind])
            for kind in {kernel.kind for kernel in self.kernels}
        }
        return dict(sorted(sums.items(), key=lambda item: -item[1].microseconds))


def measure(wanted: Kernels, report: Report) -> Trace:
    require_positive(updates=wanted.updates)
    device = prepared_device()
    updates = wanted.updates or (20 if device.is_gpu else 2)
    contender = as_in_training(wanted, device)
    report.begin(hardware(device))
    with (
        report.console.status(f"tracing {contender}"),
        ready_learners(contender, device, report.console.print) as learners,
    ):
        trace = _traced(whole_update(learners), contender, device, updates)
    busy = "" if trace.busy is None else f", the GPU busy for {trace.busy:.2f} of them"
    report.console.print(f"{contender}: {trace.milliseconds:.2f} ms per update of every learner{busy}")
    for heading, kernels in (("kind", trace.by_kind().values()), ("kernel", trace.kernels[:_SHOWN])):
        rows = [{**asdict(kernel), "kernel": kernel.kernel[:_NAME_LENGTH]} for kernel in kernels]
        report.show(rows, {"calls": "calls", "microseconds": "us", "kernel": heading}, digits=1)
    whole = {**contender.row(), "milliseconds": trace.milliseconds, "busy": trace.busy}
    report.save([{**whole, "kind": kernel.kind, **asdict(kernel)} for kernel in trace.kernels])
    return trace


def _traced(update: Callable[[], None], contender: Contender, device: Device, updates: int) -> Trace:
    (milliseconds,) = update_rounds(update, contender, device, updates=updates, rounds=1)
    on_gpu = device.is_gpu
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(updates):
            update()
        device.synchronize()
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in profiler.events():
        if on_gpu == (event.device_type.name == "CUDA"):
            begin = event.time_range.start
            took = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
            spans[event.name].append((begin, begin + took))
    kernels = [
        Kernel(name, len(each) / updates, sum(end - begin for begin, end in each) / updates)
        for name, each in spans.items()
    ]
    kernels.sort(key=lambda kernel: -kernel.microseconds)
    busy = covered([span for each in spans.values() for span in each]) / 1000.0 / updates
    return Trace(tuple(kernels), milliseconds, busy if on_gpu else None)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of what at least one of the spans covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def summed(name: str, kernels: Sequence[Kernel]) -> Kernel:
    calls = sum(kernel.calls for kernel in kernels)
    return Kernel(name, calls, sum(kernel.microseconds for kernel in kernels))
