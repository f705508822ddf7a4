"""`python -m benchmarks train`: what a step of a real run costs, evaluation included, and where time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.commands import Train
from benchmarks.harness import Report, hardware
from benchmarks.learners import peak_memory, release
from ogspr.device import Device, best_device
from ogspr.errors import UserError, require_positive
from ogspr.training.evaluation import Evaluation
from ogspr.training.options import KeepOptions, TrainOptions
from ogspr.training.presets import preset_options
from ogspr.training.run import Listener, Request, Run
from ogspr.training.session import Session
from ogspr.training.signals import Stopped, StopRequest
from ogspr.training.trainer import Stopwatch

PHASES = ("act", "update", "environment", "evaluate", "store", "log", "rest")
_PAPER_STEPS = 500_000
_NO_CHECKPOINT_MINUTES = 1e6
_UPDATES_BEFORE = 500  # agent steps with updates, at the end of the warm-up
_TITLE = "ms per agent step of every seed, and where they go; ratio: agent steps per second"
# More columns, or longer headings, would not fit into 80 characters.
_HEADINGS = {
    "preset": "method",
    "params": "params",
    "seeds": "seeds",
    "milliseconds": "ms",
    "ratio": "ratio",
    "act": "act",
    "update": "update",
    "environment": "env",
    "evaluate": "eval",
    "store": "store",
    "rest": "rest",
    "hours_for_500k": "h for 500k",
}


@dataclass(frozen=True)
class TrainResult:
    """One method with one number of seeds, measured."""

    task: str
    preset: str
    parameters: int
    seeds: int
    agent_steps: int  # timed, of each seed
    milliseconds: float  # one agent step of every seed
    ratio: float  # agent steps per second of all seeds together, against the first result
    phases: dict[str, float]  # milliseconds of it
    gpu_memory_bytes: int  # at most

    @property
    def hours(self) -> float:
        """For a run of the paper's length, all seeds of it."""
        return self.milliseconds * _PAPER_STEPS / 3.6e6

    def row(self) -> dict[str, object]:
        row = asdict(self)
        phases, memory = row.pop("phases"), row.pop("gpu_memory_bytes")
        return {**row, **phases, "hours_for_500k": self.hours, "gpu_memory_bytes": memory}


def measure(wanted: Train, report: Report) -> list[TrainResult]:
    require_positive(steps=wanted.steps, warm_up=wanted.warm_up)
    device = best_device()
    counts = wanted.seeds or ((1, 2, 3, 5) if device.is_gpu else (1,))
    require_positive(**{f"number_of_seeds_{i}": count for i, count in enumerate(counts)})
    for method in wanted.methods:
        preset_options(method, wanted.task)  # finds misspelt names before anything is measured
    report.begin(hardware(device))
    results: list[TrainResult] = []
    for method, count in product(wanted.methods, counts):
        with report.console.status(f"training {count} seeds of {method}"):
            result = _measure(wanted, method, count, report)
        first = results[0] if results else result
        ratio = (first.milliseconds / first.seeds) / (result.milliseconds / count)
        results.append(replace(result, ratio=ratio))
        report.save([each.row() for each in results])
    show(results, report)
    return results


def show(results: Sequence[TrainResult], report: Report) -> None:
    """`rest` holds the phase of that name and logging."""
    rows = [
        {
            **result.row(),
            "params": f"{result.parameters / 1e6:.2f}M",
            "rest": result.phases["log"] + result.phases["rest"],
        }
        for result in results
    ]
    report.show(rows, _HEADINGS, _TITLE)


class _Timer(Listener):
    """Measures a number of steps, from the end of the warm-up."""

    def __init__(self, warm_up: int, steps: int, device: Device, stop: StopRequest, report: Report) -> None:
        self._device = device
        self._warm_up = warm_up
        self._end = warm_up + steps
        self._stop = stop
        self._report = report
        self._began: float | None = None
        self.watch = Stopwatch()
        self.seconds: float | None = None  # for all the steps
        self.parameters = 0  # of each agent
        self.evaluations = 0  # that ended during the measurement, of all seeds
        self.phases: dict[str, float] = {}

    def warning(self, text: str) -> None:
        self._report.console.print(f"warning: {text}")

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None:  # noqa: ARG002
        self.evaluations += self._began is not None and evaluation.snapshot.agent_steps >= self._warm_up

    def round(self, runs: Sequence[Run]) -> None:
        steps = min(run.trainer.progress.agent_steps for run in runs)
        if self._began is None and steps >= self._warm_up:
            self._device.synchronize()
            self.watch.reset()
            self._began = time.perf_counter()
        if self._began is not None and self.seconds is None and steps >= self._end:
            self._device.synchronize()
            self.seconds = time.perf_counter() - self._began
            self.watch.switch(Stopwatch.REST)
            self.phases = dict(self.watch.seconds)
            self.parameters = runs[0].learner.agent.parameter_count
            self._stop.ask()


def _measure(wanted: Train, method: str, count: int, report: Report) -> TrainResult:
    device = best_device()
    release(device)
    options = preset_options(method, wanted.task)
    steps = wanted.steps or options.evaluation.every
    stop = StopRequest()
    timer = _Timer(wanted.warm_up, steps, device, stop, report)
    with TemporaryDirectory() as folder:
        folders = tuple(Path(folder) / f"seed-{seed}" for seed in range(count))
        shortened = _shortened(options, wanted)
        request = Request(wanted.task, method, tuple(range(count)), shortened, folders)
        session = Session(request, timer, stop, timer.watch)
        with contextlib.suppress(Stopped):
            session.run()
    if timer.seconds is None:
        raise UserError(f"nothing was measured: {'; '.join(session.failed)}")
    if not wanted.steps and timer.evaluations < count:
        report.console.print(
            f"warning: with {count} seeds of {method}, an evaluation was still running at the end, so "
            "part of it is missing from these numbers; start where one starts: "
            f"--warm-up {options.evaluation.every}."
        )
    each = 1000.0 / steps
    phases = {name: each * timer.phases.get(name, 0.0) for name in PHASES}
    return TrainResult(
        wanted.task,
        method,
        timer.parameters,
        count,
        steps,
        each * timer.seconds,
        1.0,
        phases,
        peak_memory(device),
    )


def _shortened(options: TrainOptions[Any], wanted: Train) -> TrainOptions[Any]:
    """The preset's run with a short beginning; its replay buffer is as large as in the whole run."""
    random_steps = max(wanted.warm_up // 2, wanted.warm_up - _UPDATES_BEFORE)
    return replace(
        options,
        agent=replace(options.agent, random_steps=random_steps),
        evaluation=replace(options.evaluation, overlap=wanted.overlap),
        keep=KeepOptions(checkpoint_minutes=_NO_CHECKPOINT_MINUTES, tensorboard=False),
    )
