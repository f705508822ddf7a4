"""`ogspr bench update`: what one update costs, run in every way there is, in one process.

Replay is filled with random bytes: what an update costs does not depend on what the pictures show. The
phases come from updates cut off after each phase, so they add up to the whole also where work overlaps. The
bound is what the matrix products and convolutions would take at the speed of one large matrix product in
the precision that each of them has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ogspr.agents.protocol import AgentConfig
from ogspr.bench.hardware import hardware_line
from ogspr.bench.options import UpdateBench, UsualUpdate
from ogspr.bench.work import (
    Memory,
    Operations,
    floating_point_operations,
    held_memory,
    most_memory,
    operations_a_second,
    release,
    wait,
)
from ogspr.errors import require_positive, unknown
from ogspr.records.files import check_csv, write_csv
from ogspr.replay import Replay
from ogspr.train.device import ready_device
from ogspr.train.execution import Execution, Mode, Precision, default_execution
from ogspr.train.graph import set_matrix_precision
from ogspr.train.learner import Learner, LearnerSettings, make_learners
from ogspr.train.recipes import recipe
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, TimeStep

_EPISODE = 500
_WARM_UP = 5  # updates before anything is timed: compilation, capture
_COUNTED_CAPACITY = 1_000  # of the replay of the update whose operations are counted
_TASKS = {"dmc": "dmc:cheetah-run", "atari100k": "atari:Pong"}  # whose settings are used
_SPECS = {
    "dmc": EnvSpec("cheetah-run sizes", (3, 84, 84), 3, ContinuousActions(6), 2, _EPISODE),
    "atari100k": EnvSpec("Atari sizes", (1, 84, 84), 4, DiscreteActions(18), 4, _EPISODE),
}


@dataclass(frozen=True)
class Contender:
    """One way of running."""

    execution: Execution
    learners: int
    batch_size: int
    capacity: int  # of each replay

    def __str__(self) -> str:
        return (
            f"{self.execution.mode} {self.execution.precision}, learners: {self.learners}, "
            f"batch size {self.batch_size}, {self.capacity} steps in replay"
        )


@dataclass(frozen=True)
class Plan:
    """What is measured, with everything that was left out chosen for the machine: minutes suffice."""

    config: AgentConfig
    spec: EnvSpec
    contenders: list[Contender]
    updates: int
    rounds: int
    device: torch.device

    def settings(self, contender: Contender) -> LearnerSettings:
        config: AgentConfig = replace(self.config, batch_size=contender.batch_size)  # type: ignore[type-var]
        return LearnerSettings(config, self.spec, contender.capacity, self.device, contender.execution)


@dataclass(frozen=True)
class UpdateResult:
    """A contender, measured."""

    contender: Contender
    milliseconds: float  # one update of every learner, the median round
    spread: float  # slowest round minus fastest
    ratio: float  # windows learned from a second, against the first result
    phases: dict[str, float]  # milliseconds; empty with more than one learner
    operations: Operations  # of one update of one learner
    bound: float  # milliseconds that they take at least, of all learners
    memory: Memory  # on a GPU


def bench_update(bench: UpdateBench, *, out: Path | None, console: Console) -> list[UpdateResult]:
    """Measures everything; prints a table and writes it as csv."""
    require_positive(updates=bench.updates, rounds=bench.rounds)
    for name in ("learners", "batch_sizes", "capacities"):
        require_positive(**{f"{name}_{i}": count for i, count in enumerate(getattr(bench, name))})
    if out is not None:
        check_csv(out)
    device = ready_device()
    planned = plan(bench, device)  # a misspelt name is found before anything is measured
    hardware = hardware_line(device)
    console.print(hardware)
    results: list[UpdateResult] = []
    for result in _measured(planned, console):
        first = results[0] if results else result
        results.append(replace(result, ratio=_cost(first) / _cost(result)))
        if out is not None:  # after each: what is measured is not lost with the next one
            _write(out, bench, results, hardware)
    console.print(_table(results))
    if out is not None:
        console.print(f"written {out}")
    return results


def plan(bench: UpdateBench, device: torch.device) -> Plan:
    gpu = device.type == "cuda"
    if bench.suite not in _SPECS:
        raise unknown("suite", bench.suite, _SPECS)
    config = recipe(bench.preset, _TASKS[bench.suite]).agent
    batch_size = config.batch_size if gpu else 16
    return Plan(
        config,
        _SPECS[bench.suite],
        _contenders(bench, gpu, batch_size),
        updates=bench.updates or (100 if gpu else 3),
        rounds=bench.rounds,
        device=device,
    )


def usual_plan(wanted: UsualUpdate, device: torch.device) -> Plan:
    """With one contender."""
    require_positive(learners=wanted.learners, batch_size=wanted.batch_size)
    execution = default_execution(device.type)
    return plan(
        UpdateBench(
            preset=wanted.preset,
            suite=wanted.suite,
            modes=(execution.mode,),
            precisions=(execution.precision,),
            learners=(wanted.learners,),
            batch_sizes=() if wanted.batch_size is None else (wanted.batch_size,),
            rounds=1,
        ),
        device,
    )


def _contenders(bench: UpdateBench, gpu: bool, batch_size: int) -> list[Contender]:
    """Every mode and precision with the first of each number, then the last of them with the others."""
    modes: Sequence[Mode] = bench.modes or (("eager", "compiled", "graph") if gpu else ("eager",))
    precisions: Sequence[Precision] = bench.precisions or (("fp32", "tf32", "bf16") if gpu else ("fp32",))
    learners = bench.learners or ((1, 2, 3, 4, 5) if gpu else (1, 2))
    batch_sizes = bench.batch_sizes or (batch_size,)
    capacities = bench.capacities or (100_000 if gpu else 2_000,)
    grid = [
        Contender(Execution(mode, precision), learners[0], batch_sizes[0], capacities[0])
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


def _measured(planned: Plan, console: Console) -> Iterator[UpdateResult]:
    speed = cache(lambda precision: operations_a_second(planned.device, precision))
    operations = cache(lambda batch_size: _operations(planned, batch_size))
    for contender in planned.contenders:
        with console.status(f"measuring {contender}"):
            count = operations(contender.batch_size)
            bound = 1000.0 * contender.learners * count.seconds(contender.execution.precision, speed)
            result = _measure(planned, contender, console)
        yield replace(result, operations=count, bound=bound)


def _operations(planned: Plan, batch_size: int) -> Operations:
    """Of one update, counted where every product is one of torch's own: without graph and own kernels."""
    contender = Contender(Execution("eager", "fp32"), 1, batch_size, _COUNTED_CAPACITY)
    with ready_learners(planned, contender, announce=lambda _: None) as (learner,):
        return floating_point_operations(_whole_update(learner))


@contextmanager
def ready_learners(
    planned: Plan, contender: Contender, announce: Callable[[str], None]
) -> Iterator[list[Learner]]:
    """With full replays; says how much memory those take."""
    count = contender.learners
    with TemporaryDirectory() as folder:
        settings = planned.settings(contender)
        learners = make_learners(settings, range(count), [Path(folder)] * count, announce=announce)
        for seed, learner in enumerate(learners):
            fill(learner, seed)
        yield learners


def _measure(planned: Plan, contender: Contender, console: Console) -> UpdateResult:
    device, count = planned.device, contender.learners
    release(device)
    # Libraries keep some of what earlier contenders made them take.
    held, most = held_memory(device), most_memory(device)
    with ready_learners(planned, contender, console.print) as learners:
        rounds = timed_rounds(update_of_all(learners), planned, contender.execution)
        memory = Memory.of(learners, held_memory(device) - held, most_memory(device) - most)
        phases = _phases(learners[0], planned, contender.execution) if count == 1 else {}
    return UpdateResult(
        contender,
        median(rounds),
        spread=max(rounds) - min(rounds),
        ratio=1.0,
        phases=phases,
        operations=Operations(0, 0),
        bound=0.0,
        memory=memory,
    )


def _cost(result: UpdateResult) -> float:
    """Milliseconds for one window of a batch."""
    return result.milliseconds / (result.contender.learners * result.contender.batch_size)


def _whole_update(learner: Learner) -> Callable[[], None]:
    """The last phase's end. Methods with several kinds of updates make one of each, as they do on average."""
    return list(learner.phases().values())[-1]


def update_of_all(learners: Sequence[Learner]) -> Callable[[], None]:
    updates = [_whole_update(learner) for learner in learners]

    def update_all() -> None:
        for update in updates:
            update()

    return update_all


def _phases(learner: Learner, planned: Plan, execution: Execution) -> dict[str, float]:
    """Milliseconds of each phase: what an update that goes one phase further takes longer."""
    phases, before = {}, 0.0
    for name, procedure in learner.phases().items():
        until = median(timed_rounds(procedure, planned, execution))
        phases[name] = until - before
        before = until
    return phases


def timed_rounds(update: Callable[[], None], planned: Plan, execution: Execution) -> list[float]:
    """Milliseconds an update, for each round."""
    set_matrix_precision(execution.precision)
    for _ in range(_WARM_UP):
        update()
    rounds = []
    for _ in range(planned.rounds):
        wait(planned.device)
        start = time.perf_counter()
        for _ in range(planned.updates):
            update()
        wait(planned.device)
        rounds.append(1000 * (time.perf_counter() - start) / planned.updates)
    return rounds


def fill(learner: Learner, seed: int) -> None:
    """Random bytes, actions and rewards in the whole replay, as if episodes had been stored."""
    replay, spec, rng = learner.replay, learner.spec, np.random.default_rng(seed)
    steps = min(replay.shape.capacity, replay.shape.frame_stack + 2 * replay.shape.longest_horizon) - 1
    blank = np.zeros(spec.observation_shape, np.uint8)
    step = TimeStep(blank, 0.0, 0.0, False, False, spec.action_repeat, np.zeros(0))
    learner.begin(step)
    for _ in range(steps):  # through the front door, so that the replay knows that it can be drawn from
        learner.add(spec.actions.sample(rng), step)
    learner.run(lambda: _fill_tensors(replay, seed))


def _fill_tensors(replay: Replay, seed: int) -> None:
    generator = torch.Generator(replay.device).manual_seed(seed)
    replay.frames.random_(0, 256, generator=generator)
    replay.numbers.uniform_(-1.0, 1.0, generator=generator)
    replay.numbers[:, -1] = 0.0  # nothing is terminal
    age = torch.arange(replay.shape.capacity, device=replay.device) % (_EPISODE + 1)
    replay.age.copy_(age)
    replay.reach.copy_((_EPISODE - age).clamp(max=replay.shape.longest_horizon))
    replay.reach[-replay.shape.longest_horizon :] = 0
    replay.priority.uniform_(1.0, 3.0, generator=generator)


_PHASES = ("sample", "forward", "backward", "optimise")


def _table(results: Sequence[UpdateResult]) -> Table:
    title = (
        "ms for one update of every learner\nratio: windows learned from a second against the first line\n"
        "bound: ms of its matrix products at the speed of one large product"
    )
    table = Table(box=None, header_style="bold", title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("mode")
    sizes = _sizes_that_vary([result.contender for result in results])
    for heading in (*sizes, "ms", "ratio", *_PHASES, "bound"):
        table.add_column(heading, justify="right")
    for place, result in enumerate(results):
        table.add_row(
            f"{result.contender.execution.mode} {result.contender.execution.precision}",
            *(str(values[place]) for values in sizes.values()),
            f"{result.milliseconds:.2f}",
            f"{result.ratio:.2f}",
            *(f"{result.phases[name]:.2f}" if result.phases else "" for name in _PHASES),
            f"{result.bound:.2f}",
        )
    return table


def _sizes_that_vary(contenders: Sequence[Contender]) -> dict[str, list[int]]:
    """Columns for them: a terminal has no room for the others."""
    columns = {
        "learners": [contender.learners for contender in contenders],
        "batch": [contender.batch_size for contender in contenders],
        "replay": [contender.capacity for contender in contenders],
    }
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _write(path: Path, bench: UpdateBench, results: Sequence[UpdateResult], hardware: str) -> None:
    memory = [field.name for field in fields(Memory)]
    header = (
        *("preset", "suite", "batch_size", "capacity", "mode", "precision", "learners"),
        *("milliseconds", "spread", "ratio", *_PHASES, "operations", "bound"),
        *(f"{name}_bytes" for name in memory),
        "hardware",
    )
    rows = [
        (
            bench.preset,
            bench.suite,
            result.contender.batch_size,
            result.contender.capacity,
            result.contender.execution.mode,
            result.contender.execution.precision,
            result.contender.learners,
            f"{result.milliseconds:.4f}",
            f"{result.spread:.4f}",
            f"{result.ratio:.3f}",
            *(f"{result.phases[name]:.4f}" if result.phases else "" for name in _PHASES),
            result.operations.total,
            f"{result.bound:.4f}",
            *(getattr(result.memory, name) for name in memory),
            hardware,
        )
        for result in results
    ]
    write_csv(path, header, rows)
