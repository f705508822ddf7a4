"""`python -m benchmarks update`: what one update costs, in every way it can run, in one process.

The phases come from updates that are cut off after each phase, so they add up to the whole even where work
overlaps. The bound is what the matrix products and convolutions would take at the speed of one large matrix
product in the precision that each of them has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from statistics import median

from benchmarks.commands import Update
from benchmarks.flops import Operations, floating_point_operations, operations_a_second
from benchmarks.harness import Report, hardware
from benchmarks.learners import (
    Contender,
    Memory,
    default_batch_size,
    default_capacity,
    held_memory,
    peak_memory,
    phases_of,
    ready_learners,
    release,
    update_rounds,
    whole_update,
)
from ogspr.device import Device, prepared_device
from ogspr.errors import require_positive
from ogspr.training.options import Execution, Mode, Precision

PHASES = ("sample", "forward", "backward", "optimise")
_COUNTED_CAPACITY = 1_000  # replay capacity of the update whose operations are counted
_TITLE = (
    "ms for one update of every learner\nratio: windows learned from per second, against the first line\n"
    "bound: ms of its matrix products at the speed of one large product"
)


@dataclass(frozen=True)
class UpdateResult:
    """A contender, measured."""

    contender: Contender
    milliseconds: float  # one update of every learner, the median round
    spread: float  # slowest round minus fastest
    ratio: float  # windows learned from per second, against the first result
    phases: dict[str, float]  # milliseconds; empty with more than one learner
    operations: int  # of one update of one learner
    bound: float  # milliseconds that the operations of all learners take at least
    memory: Memory  # on a GPU

    @property
    def cost(self) -> float:
        """Milliseconds for one window of a batch."""
        return self.milliseconds / (self.contender.learners * self.contender.batch_size)

    def row(self) -> dict[str, object]:
        timing = {"milliseconds": self.milliseconds, "spread": self.spread, "ratio": self.ratio}
        phases = {name: self.phases.get(name) for name in PHASES}
        arithmetic = {"operations": self.operations, "bound": self.bound}
        return {**self.contender.row(), **timing, **phases, **arithmetic, **asdict(self.memory)}


def measure(wanted: Update, report: Report) -> list[UpdateResult]:
    require_positive(updates=wanted.updates, rounds=wanted.rounds)
    for name in ("learners", "batch_sizes", "capacities"):
        require_positive(**{f"{name}_{i}": count for i, count in enumerate(getattr(wanted, name))})
    device = prepared_device()
    contenders = _contenders(wanted, device)  # finds misspelt names before anything is measured
    report.begin(hardware(device))
    speed = cache(partial(operations_a_second, device))
    operations = cache(partial(_operations, contenders[0], device))
    results: list[UpdateResult] = []
    for contender in contenders:
        with report.console.status(f"measuring {contender}"):
            result = _measure(wanted, contender, device, report)
            count = operations(contender.batch_size)
            bound = 1000.0 * contender.learners * count.seconds(contender.execution.precision, speed)
        first = results[0] if results else result
        ratio = first.cost / result.cost
        results.append(replace(result, ratio=ratio, operations=count.total, bound=bound))
        report.save([each.row() for each in results])
    rows = [each.row() for each in results]
    sizes = {"learners": "learners", "batch_size": "batch", "capacity": "replay"}
    varied = {name: heading for name, heading in sizes.items() if len({row[name] for row in rows}) > 1}
    times = {"milliseconds": "ms", "ratio": "ratio", **{name: name for name in PHASES}, "bound": "bound"}
    report.show(rows, {"mode": "mode", "precision": "in", **varied, **times}, _TITLE)
    return results


def _contenders(wanted: Update, device: Device) -> list[Contender]:
    """All modes and precisions with the first of each size, then the last of them with the other sizes."""
    gpu = device.is_gpu
    modes: Sequence[Mode] = wanted.modes or (("eager", "compiled", "graph") if gpu else ("eager",))
    precisions: Sequence[Precision] = wanted.precisions or (("fp32", "tf32", "bf16") if gpu else ("fp32",))
    learners = wanted.learners or ((1, 2, 3, 4, 5) if gpu else (1, 2))
    default = default_batch_size(wanted.preset, wanted.suite, device)
    batch_sizes = wanted.batch_sizes or (default,)
    capacities = wanted.capacities or (default_capacity(device),)
    sizes = (learners[0], batch_sizes[0], capacities[0])
    grid = [
        Contender(wanted.preset, wanted.suite, Execution(mode, precision), *sizes)
        for mode in modes
        for precision in precisions
    ]
    last = grid[-1]
    return [
        *grid,
        *(replace(last, learners=count) for count in learners[1:]),
        *(replace(last, batch_size=size) for size in batch_sizes[1:]),
        *(replace(last, capacity=size) for size in capacities[1:]),
    ]


def _operations(like: Contender, device: Device, batch_size: int) -> Operations:
    """Counted in an eager update in fp32, where every product is one of torch's own."""
    execution = Execution("eager", "fp32")
    counted = replace(
        like, execution=execution, learners=1, batch_size=batch_size, capacity=_COUNTED_CAPACITY
    )
    with ready_learners(counted, device, announce=lambda _: None) as learners:
        return floating_point_operations(whole_update(learners))


def _measure(wanted: Update, contender: Contender, device: Device, report: Report) -> UpdateResult:
    updates = wanted.updates or (100 if device.is_gpu else 3)
    timed = partial(update_rounds, contender=contender, device=device, updates=updates, rounds=wanted.rounds)
    release(device)
    # Libraries keep some of what earlier contenders made them reserve.
    held, peak = held_memory(device), peak_memory(device)
    with ready_learners(contender, device, report.console.print) as learners:
        rounds = timed(whole_update(learners))
        memory = Memory.of(learners, held_memory(device) - held, peak_memory(device) - peak)
        phases, before = {}, 0.0
        # An update that ends one phase later takes longer by that phase.
        for name, until_here in phases_of(learners[0]).items() if contender.learners == 1 else ():
            until = median(timed(until_here))
            phases[name], before = until - before, until
    return UpdateResult(contender, median(rounds), max(rounds) - min(rounds), 1.0, phases, 0, 0.0, memory)
