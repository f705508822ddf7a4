"""`ogspr bench precision`: what rounding does to the gradients of a run, against what chance does to them.

From the newest checkpoint of the run, the next update is made with batch after batch: in float32 and in every
other precision with the same ones. AdamW's first moment tells which gradient it was given (clipped, as in
training), whatever the method. Rounding that changes a gradient far less than another batch would is lost in
what learning from batches averages out anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ogspr.agents.optimisation import BETA1
from ogspr.agents.protocol import State
from ogspr.bench.hardware import hardware_line
from ogspr.errors import UserError
from ogspr.records.files import check_csv, write_csv
from ogspr.records.run import RunFolder
from ogspr.train.device import ready_device
from ogspr.train.execution import Execution, Precision
from ogspr.train.journal import Journal
from ogspr.train.learner import Learner, LearnerSettings, plan_learners
from ogspr.train.opened import OpenedRun, open_run
from ogspr.train.policy_file import LAST, find_policy, load_policy
from ogspr.train.state_file import as_tensors

ANOTHER_BATCH = "fp32, another batch"
_STEPS = re.compile(r"(\w+)_optimiser\.steps\.")
_SEED = 0  # decides which batches are drawn

Gradient = dict[str, Tensor]  # one vector for each optimiser, by what it trains


@dataclass(frozen=True)
class PrecisionResult:
    """Gradients of one part of an agent compared with those in fp32, means over updates."""

    part: str
    compared: str  # a precision, or ANOTHER_BATCH
    error: float  # length of the difference, as a share of the fp32 gradient's
    cosine: float  # of the angle between the two
    length: float  # against the fp32 gradient's


def bench_precision(run: Path, *, updates: int, out: Path | None, console: Console) -> list[PrecisionResult]:
    """Compares gradients; prints a table and writes it as csv."""
    if updates < 2:
        raise UserError(f"updates must be at least 2, to compare two batches, got {updates}.")
    if out is not None:
        check_csv(out)
    opened = open_run(run, console.print)
    device = ready_device()
    hardware = hardware_line(device)
    console.print(hardware)
    console.print(f"{run}: {opened.config.preset} on {opened.config.task}, agent step {opened.agent_steps}")
    settings = _settings(opened, device)
    console.print(str(plan_learners(settings, 1)))
    with console.status("updates in fp32"):
        exact = _gradients(opened, settings, updates, console)
    results = _compared(ANOTHER_BATCH, exact[1:], exact[:-1])
    precisions: tuple[Precision, ...] = ("tf32", "bf16") if device.type == "cuda" else ("bf16",)
    for precision in precisions:
        with console.status(f"updates in {precision}"):
            rounded = replace(settings, execution=replace(settings.execution, precision=precision))
            results += _compared(precision, _gradients(opened, rounded, updates, console), exact)
    results.sort(key=lambda result: result.part)
    console.print(_table(results))
    if out is not None:
        _write(out, opened, updates, results, hardware)
        console.print(f"written {out}")
    return results


def _settings(run: OpenedRun, device: torch.device) -> LearnerSettings:
    # From a file and not from the environment: to make one, a run's settings may name any code there is.
    spec = load_policy(find_policy(run.path, LAST)).spec
    execution = Execution("eager", "fp32", deterministic=True)
    # Frames in main memory would be drawn one update ahead, and each batch here is drawn from the same state.
    return LearnerSettings(run.options.agent, spec, run.config.capacity, device, execution, place="device")


def _gradients(run: OpenedRun, settings: LearnerSettings, updates: int, console: Console) -> list[Gradient]:
    """Of the run's next update with so many batches, the same ones in every precision."""
    found = []
    with TemporaryDirectory() as folder:
        learner = Learner(
            settings, place="device", seed=_SEED, state_folder=Path(folder), report=console.print
        )
        # Not the run's own random numbers: those of a GPU mean nothing to a CPU.
        generator = learner.state_dict()["generator"]
        start, replay = _load(run, learner)
        for _ in range(updates):
            learner.load_state_dict(start | {"generator": generator})
            learner.load_replay_state_dict(replay)
            learner.update()
            after = learner.state_dict()
            generator = after["generator"]
            gradient = gradient_of_update(start["tensors"], after["tensors"])
            if not gradient:
                raise UserError(f"{run.path}: its next update is left out, because numbers are not finite.")
            found.append(gradient)
    return found


def _load(run: OpenedRun, learner: Learner) -> tuple[State, State]:
    """Puts what the run has stored into the learner; the states of its agent and of its replay."""
    saved = run.checkpoint.state()
    try:
        agent, replay = as_tensors(saved["learner"]), as_tensors(saved["replay"])
        learner.load_replay_state_dict(replay)
        Journal(RunFolder(run.path).replay, run.checkpoint.pieces).restore(learner)
        learner.load_state_dict(agent | {"generator": learner.state_dict()["generator"]})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.checkpoint.path} does not fit the settings of its run: {error}; choose another run."
        ) from None
    return agent, replay


def gradient_of_update(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Gradient:
    """What every optimiser that took one step between two states of an agent was given, clipped."""
    parts: dict[str, list[str]] = {}
    for name in after:
        if found := _STEPS.match(name):
            parts.setdefault(found[1], []).append(name)
    return {
        part: torch.cat(
            [
                (after[name] - BETA1 * before[name]).flatten() / (1.0 - BETA1)
                for name in after
                if name.startswith(f"{part}_optimiser.first.")
            ]
        )
        for part, steps in parts.items()
        if all(after[name] - before[name] == 1 for name in steps)
    }


def _compared(name: str, found: Sequence[Gradient], exact: Sequence[Gradient]) -> list[PrecisionResult]:
    results = []
    for part in exact[0]:
        pairs = [
            (ours[part].double(), right[part].double()) for ours, right in zip(found, exact, strict=True)
        ]
        lengths = [(ours.norm(), right.norm()) for ours, right in pairs]
        cosines = [ours @ right / (a * b) for (ours, right), (a, b) in zip(pairs, lengths, strict=True)]
        errors = [(ours - right).norm() / right.norm() for ours, right in pairs]
        ratios = [a / b for a, b in lengths]
        results.append(
            PrecisionResult(part, name, *(fmean(map(float, x)) for x in (errors, cosines, ratios)))
        )
    return results


def _table(results: Sequence[PrecisionResult]) -> Table:
    title = "gradients against those in fp32: difference, angle, length"
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for heading in ("of", "in", "error", "cosine", "length"):
        table.add_column(heading, justify="left" if heading in ("of", "in") else "right")
    for result in results:
        numbers = (result.error, result.cosine, result.length)
        table.add_row(result.part, result.compared, *(f"{number:.4f}" for number in numbers))
    return table


def _write(
    path: Path, run: OpenedRun, updates: int, results: Sequence[PrecisionResult], hardware: str
) -> None:
    header = ("task", "preset", "agent_steps", "updates", "part", "compared", "error", "cosine", "length")
    origin = (run.config.task, run.config.preset, run.agent_steps, updates)
    rows = [
        (
            *origin,
            result.part,
            result.compared,
            *(f"{number:.6f}" for number in (result.error, result.cosine, result.length)),
            hardware,
        )
        for result in results
    ]
    write_csv(path, (*header, "hardware"), rows)
