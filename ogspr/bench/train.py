"""`ogspr bench train`: what a step of a real training run costs, evaluation included, and where time goes."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ogspr.bench.hardware import hardware_line
from ogspr.bench.options import TrainBench
from ogspr.bench.work import most_memory, release, wait
from ogspr.errors import UserError, require_positive
from ogspr.records.files import check_csv, write_csv
from ogspr.train.device import best_device
from ogspr.train.evaluation import Evaluation
from ogspr.train.options import KeepOptions, TrainOptions
from ogspr.train.recipes import recipe
from ogspr.train.session import Audience, Request, Run, Session
from ogspr.train.signals import Stopped, StopRequest
from ogspr.train.stopwatch import Stopwatch

PHASES = ("act", "update", "environment", "evaluate", "store", "log", "rest")
# Headings of the table and what is below them; longer or more, and 80 columns would cut them off.
_SHOWN = {
    "act": ("act",),
    "update": ("update",),
    "env": ("environment",),
    "eval": ("evaluate",),
    "store": ("store",),
    "rest": ("log", "rest"),
}
_PAPER_STEPS = 500_000
_NO_CHECKPOINT_MINUTES = 1e6
_UPDATES_BEFORE = 500  # agent steps with updates, at the end of the warm-up


@dataclass(frozen=True)
class TrainResult:
    """One method with one number of seeds, measured."""

    method: str  # its preset
    parameters: int
    seeds: int
    milliseconds: float  # one agent step of every seed
    ratio: float  # agent steps a second of all seeds together, against the first result
    phases: dict[str, float]  # milliseconds of it
    agent_steps: int  # timed, of each seed
    memory_bytes: int  # on the GPU, at most

    @property
    def hours(self) -> float:
        """For a run of the paper's length, all seeds of it."""
        return self.milliseconds * _PAPER_STEPS / 3.6e6


def bench_train(task: str, bench: TrainBench, *, out: Path | None, console: Console) -> list[TrainResult]:
    """Trains for real, for a while; prints a table and writes it as csv."""
    require_positive(steps=bench.steps, warm_up=bench.warm_up)
    if out is not None:
        check_csv(out)
    device = best_device()
    counts = bench.seeds or ((1, 2, 3, 5) if device.type == "cuda" else (1,))
    require_positive(**{f"number_of_seeds_{i}": count for i, count in enumerate(counts)})
    for method in bench.methods:
        recipe(method, task)  # a misspelt one is told before the others are measured
    hardware = hardware_line(device)
    console.print(hardware)
    results: list[TrainResult] = []
    for method, count in product(bench.methods, counts):
        with console.status(f"training {count} seeds of {method}"):
            result = _measure(task, method, bench, count, console)
        first = results[0] if results else result
        ratio = (first.milliseconds / first.seeds) / (result.milliseconds / count)
        results.append(replace(result, ratio=ratio))
        if out is not None:  # after each: what is measured is not lost with the next one
            _write(out, task, results, hardware)
    console.print(_table(results))
    if out is not None:
        console.print(f"written {out}")
    return results


class _Timer(Audience):
    """Measures from the end of the warm-up on, for so many steps."""

    def __init__(self, warm_up: int, steps: int, device: torch.device, console: Console) -> None:
        self._device = device
        self._warm_up = warm_up
        self._end = warm_up + steps
        self._console = console
        self._began: float | None = None
        self.watch = Stopwatch()
        self.seconds: float | None = None  # that all the steps took
        self.parameters = 0  # of each agent
        self.evaluations = 0  # that ended while it measured, of all seeds
        self.phases: dict[str, float] = {}

    def warning(self, text: str) -> None:
        self._console.print(f"warning: {text}")

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None:  # noqa: ARG002
        self.evaluations += self._began is not None and evaluation.occasion.agent_steps >= self._warm_up

    def round(self, runs: Sequence[Run]) -> None:
        steps = min(run.trainer.progress.agent_steps for run in runs)
        if self._began is None and steps >= self._warm_up:
            wait(self._device)
            self.watch.reset()
            self._began = time.perf_counter()
        if self._began is not None and self.seconds is None and steps >= self._end:
            wait(self._device)
            self.seconds = time.perf_counter() - self._began
            self.watch.switch(Stopwatch.REST)
            self.phases = dict(self.watch.seconds)
            self.parameters = runs[0].learner.agent.parameter_count


class _StopWhenMeasured(StopRequest):
    def __init__(self, timer: _Timer) -> None:
        super().__init__()
        self._timer = timer

    @property
    def heard(self) -> bool:
        return self._timer.seconds is not None

    def obey(self) -> None:
        if self.heard:
            raise Stopped(signal.SIGTERM)


def _measure(task: str, method: str, bench: TrainBench, count: int, console: Console) -> TrainResult:
    device = best_device()
    release(device)
    options = recipe(method, task)
    steps = bench.steps or options.evaluation.every
    timer = _Timer(bench.warm_up, steps, device, console)
    with TemporaryDirectory() as folder:
        folders = tuple(Path(folder) / f"seed-{seed}" for seed in range(count))
        request = Request(task, method, tuple(range(count)), _shortened(options, bench), folders)
        session = Session(request, timer, _StopWhenMeasured(timer), timer.watch)
        with contextlib.suppress(Stopped):
            session.run()
    if timer.seconds is None:
        raise UserError(f"nothing was measured: {'; '.join(session.failed)}")
    if not bench.steps and timer.evaluations < count:
        console.print(
            f"warning: evaluation was still going on with {count} seeds of {method}: part of it is not "
            f"among these numbers; begin where one begins: --warm-up {options.evaluation.every}."
        )
    each = 1000.0 / steps
    phases = {name: each * timer.phases.get(name, 0.0) for name in PHASES}
    memory = most_memory(device)
    return TrainResult(method, timer.parameters, count, each * timer.seconds, 1.0, phases, steps, memory)


def _shortened(options: TrainOptions[Any], bench: TrainBench) -> TrainOptions[Any]:
    """The run of the preset with a short beginning; its replay is as large as in the whole one."""
    return replace(
        options,
        agent=replace(options.agent, random_steps=max(bench.warm_up // 2, bench.warm_up - _UPDATES_BEFORE)),
        evaluation=replace(options.evaluation, overlap=bench.overlap),
        keep=KeepOptions(checkpoint_minutes=_NO_CHECKPOINT_MINUTES, tensorboard=False),
    )


def _table(results: Sequence[TrainResult]) -> Table:
    title = "ms for one agent step of every seed, and where they go; ratio: agent steps a second"
    table = Table(box=None, header_style="bold", title=title, title_justify="left", padding=(0, 1, 0, 0))
    for heading in ("method", "params", "seeds", "ms", "ratio", *_SHOWN, "h for 500k"):
        table.add_column(heading, justify="left" if heading == "method" else "right", overflow="fold")
    for result in results:
        table.add_row(
            result.method,
            f"{result.parameters / 1e6:.2f}M",
            str(result.seeds),
            f"{result.milliseconds:.2f}",
            f"{result.ratio:.2f}",
            *(f"{sum(result.phases[name] for name in names):.2f}" for names in _SHOWN.values()),
            f"{result.hours:.2f}",
        )
    return table


def _write(path: Path, task: str, results: Sequence[TrainResult], hardware: str) -> None:
    header = ("task", "preset", "parameters", "seeds", "agent_steps", "milliseconds", "ratio", *PHASES)
    rows = [
        (
            task,
            result.method,
            result.parameters,
            result.seeds,
            result.agent_steps,
            f"{result.milliseconds:.4f}",
            f"{result.ratio:.3f}",
            *(f"{result.phases[name]:.4f}" for name in PHASES),
            f"{result.hours:.3f}",
            result.memory_bytes,
            hardware,
        )
        for result in results
    ]
    write_csv(path, (*header, "hours_for_500k", "gpu_memory_bytes", "hardware"), rows)
