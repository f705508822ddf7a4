"""`ogspr bench update`: what one update costs, run in every way there is, in one process.

Replay is filled with random bytes: what an update costs does not depend on what the pictures show. The
phases come from updates cut off after each phase, so they add up to the whole also where work overlaps.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ogspr.agents.ogspr import OGSPRConfig, preset
from ogspr.bench.hardware import hardware_line
from ogspr.bench.options import UpdateBench
from ogspr.errors import UserError, require_positive
from ogspr.records.files import claim_file, write_csv
from ogspr.replay import Replay
from ogspr.train.execution import Execution, Mode, Precision
from ogspr.train.graph import set_matrix_precision
from ogspr.train.learner import Learner, LearnerSettings, make_learners
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, TimeStep

_EPISODE = 500
_WARM_UP = 5  # updates before anything is timed: compilation, capture
_SPECS = {
    "dmc": EnvSpec("cheetah-run sizes", (3, 84, 84), 3, ContinuousActions(6), 2, _EPISODE),
    "atari100k": EnvSpec("Atari sizes", (1, 84, 84), 4, DiscreteActions(18), 4, _EPISODE),
}


@dataclass(frozen=True)
class Plan:
    """What is measured, with everything that was left out chosen for the machine: minutes suffice."""

    config: OGSPRConfig
    spec: EnvSpec
    contenders: list[tuple[Execution, int]]  # and how many learners
    capacity: int
    updates: int
    rounds: int


@dataclass(frozen=True)
class UpdateResult:
    """One way of running, measured."""

    mode: Mode
    precision: Precision
    learners: int
    milliseconds: float  # one update of every learner, the median round
    spread: float  # slowest round minus fastest
    ratio: float  # the first result's time a learner over this one's: above 1 is faster
    phases: dict[str, float]  # milliseconds; empty with more than one learner
    device_bytes: int  # most memory in use at once, without the frames of replay


def bench_update(bench: UpdateBench, *, out: Path | None, console: Console) -> list[UpdateResult]:
    """Measures everything; prints a table and writes it as csv."""
    require_positive(
        updates=bench.updates, rounds=bench.rounds, capacity=bench.capacity, batch_size=bench.batch_size
    )
    require_positive(**{f"number_of_learners_{i}": count for i, count in enumerate(bench.learners)})
    if out is not None:
        if out.suffix != ".csv":
            raise UserError(f"cannot write {out}: the results file must end in .csv.")
        claim_file(out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    planned = plan(bench, device)  # a misspelt name is found before anything is measured
    hardware = hardware_line(device)
    console.print(hardware)
    results: list[UpdateResult] = []
    for execution, learners in planned.contenders:
        with console.status(f"measuring {execution.mode} {execution.precision}, {learners} learners"):
            result = _measure(planned, execution, learners, device, console)
        first = results[0] if results else result
        ratio = (first.milliseconds / first.learners) / (result.milliseconds / learners)
        results.append(replace(result, ratio=ratio))
        if out is not None:  # after each: what is measured is not lost with the next one
            _write(out, bench, planned, results, hardware)
    console.print(_table(results))
    if out is not None:
        console.print(f"written {out}")
    return results


def plan(bench: UpdateBench, device: torch.device) -> Plan:
    gpu = device.type == "cuda"
    config = preset(bench.variant, bench.suite)
    batch_size = bench.batch_size or (config.batch_size if gpu else 16)
    return Plan(
        replace(config, batch_size=batch_size),
        _SPECS[bench.suite],
        _contenders(bench, gpu),
        capacity=bench.capacity or (100_000 if gpu else 2_000),
        updates=bench.updates or (100 if gpu else 3),
        rounds=bench.rounds,
    )


def _contenders(bench: UpdateBench, gpu: bool) -> list[tuple[Execution, int]]:
    """Every mode and precision with the first number of learners, then the last of them with the others."""
    modes: Sequence[Mode] = bench.modes or (("eager", "compiled", "graph") if gpu else ("eager",))
    precisions: Sequence[Precision] = bench.precisions or (("fp32", "tf32", "bf16") if gpu else ("fp32",))
    learners = bench.learners or ((1, 2, 3, 4, 5) if gpu else (1, 2))
    grid = [(Execution(mode, precision), learners[0]) for mode in modes for precision in precisions]
    return grid + [(grid[-1][0], count) for count in learners[1:]]


def _measure(
    planned: Plan, execution: Execution, count: int, device: torch.device, console: Console
) -> UpdateResult:
    settings = LearnerSettings(planned.config, planned.spec, planned.capacity, device, execution)
    _release(device)
    with TemporaryDirectory() as folder:
        learners = make_learners(settings, range(count), [Path(folder)] * count, announce=console.print)
        for seed, learner in enumerate(learners):
            fill(learner, seed)

        def update_all() -> None:
            for learner in learners:
                learner.update()

        rounds = _timed_rounds(update_all, planned, execution, device)
        phases = _phases(learners[0], planned, execution, device) if count == 1 else {}
        used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        frames = sum(learner.replay.frames.nbytes for learner in learners if learner.place == "device")
    return UpdateResult(
        execution.mode,
        execution.precision,
        count,
        median(rounds),
        max(rounds) - min(rounds),
        1.0,
        phases,
        max(0, used - frames),
    )


def _phases(learner: Learner, planned: Plan, execution: Execution, device: torch.device) -> dict[str, float]:
    """Milliseconds of each phase: what an update that goes one phase further takes longer."""
    phases, before = {}, 0.0
    for name, procedure in learner.phases().items():
        until = median(_timed_rounds(procedure, planned, execution, device))
        phases[name] = until - before
        before = until
    return phases


def _timed_rounds(
    update: Callable[[], None], planned: Plan, execution: Execution, device: torch.device
) -> list[float]:
    """Milliseconds an update, for each round."""
    set_matrix_precision(execution.precision)
    for _ in range(_WARM_UP):
        update()
    rounds = []
    for _ in range(planned.rounds):
        _wait(device)
        start = time.perf_counter()
        for _ in range(planned.updates):
            update()
        _wait(device)
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


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


_PHASES = ("sample", "forward", "backward", "optimise")


def _table(results: Sequence[UpdateResult]) -> Table:
    title = "ms for one update of every learner; ratio: updates a second against the first line"
    table = Table(box=None, header_style="bold", title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("mode")
    table.add_column("precision")
    for heading in ("learners", "ms", "ratio", *_PHASES):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.mode,
            result.precision,
            str(result.learners),
            f"{result.milliseconds:.2f}",
            f"{result.ratio:.2f}",
            *(f"{result.phases[name]:.2f}" if result.phases else "" for name in _PHASES),
        )
    return table


def _write(
    path: Path, bench: UpdateBench, planned: Plan, results: Sequence[UpdateResult], hardware: str
) -> None:
    settings = ("variant", "suite", "batch_size", "capacity", "mode", "precision", "learners")
    header = (*settings, "milliseconds", "spread", "ratio", *_PHASES, "device_bytes", "hardware")
    rows = [
        (
            bench.variant,
            bench.suite,
            planned.config.batch_size,
            planned.capacity,
            result.mode,
            result.precision,
            result.learners,
            f"{result.milliseconds:.4f}",
            f"{result.spread:.4f}",
            f"{result.ratio:.3f}",
            *(f"{result.phases[name]:.4f}" if result.phases else "" for name in _PHASES),
            result.device_bytes,
            hardware,
        )
        for result in results
    ]
    write_csv(path, header, rows)
