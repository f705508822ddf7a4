"""`python -m benchmarks precision`: what rounding does to the gradients of a run, next to what chance does.

From the newest checkpoint of the run, one update of each kind is made with batch after batch: in float32, and
with the same batches in every other precision. Gradients are what the optimisers receive, clipped as in
training. Two things are compared: single gradients, where the yardstick is how far another batch moves them,
and their means, in which chance averages out and rounding may not; there it is the standard error.

In float32 code runs eagerly, in other precisions in the requested mode, because compiled code rounds
differently. Kernels are deterministic, so that the same batches give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.commands import Precisions
from benchmarks.harness import Report, hardware
from benchmarks.learners import phases_of, release
from ogspr.agents.protocol import State
from ogspr.device import Device, prepared_device
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.training.graph import check_execution
from ogspr.training.learner import Learner, LearnerSettings, plan_learners
from ogspr.training.options import Execution, Precision, default_execution
from ogspr.training.policy_file import LAST, find_policy, load_policy
from ogspr.training.run import ReplayStore
from ogspr.training.saved_run import SavedRun, open_run
from ogspr.training.state_file import as_tensors

ANOTHER_BATCH = "fp32, another batch"
_OPTIMISER = "_optimiser"  # how the parts of an agent's state end that are optimisers
_SEED = 0  # decides which batches are drawn
_TITLE = "gradients against those in fp32; error: length of the difference, as a share of theirs"

Gradients = dict[str, list[Tensor]]  # by what is trained: a vector for each batch


@dataclass(frozen=True)
class PrecisionResult:
    """Gradients of one part of an agent compared with those in fp32."""

    part: str
    compared: str  # a precision, or ANOTHER_BATCH
    error: float  # length of the difference, as a share of the fp32 gradient's; mean over batches
    cosine: float  # of the angle between the two; mean over batches
    mean_error: float  # the same error of the mean gradient; of ANOTHER_BATCH its standard error


def measure(wanted: Precisions, report: Report) -> list[PrecisionResult]:
    run, updates = wanted.folder, wanted.updates
    if updates < 2:
        raise UserError(f"updates must be at least 2, to compare two batches, got {updates}.")
    opened = open_run(run, report.console.print, with_replay=True)
    device = prepared_device()
    mode = wanted.mode or default_execution(device.is_gpu).mode
    settings = _settings(opened, device)
    check_execution(replace(settings.execution, mode=mode), device)
    report.begin(hardware(device))
    config, agent_steps = opened.config, opened.agent_steps
    report.console.print(f"{run}: {config.preset} on {config.task}, agent step {agent_steps}")
    with report.console.status("updates in fp32"):
        exact = _gradients(opened, settings, updates)
    results = by_chance(exact)
    precisions: tuple[Precision, ...] = ("tf32", "bf16") if device.is_gpu else ("bf16",)
    for precision in precisions:
        with report.console.status(f"updates in {precision}"):
            execution = replace(settings.execution, mode=mode, precision=precision)
            rounded = replace(settings, execution=execution)
            results += by_rounding(precision, _gradients(opened, rounded, updates), exact)
    results.sort(key=lambda result: result.part)
    origin = {"task": config.task, "preset": config.preset, "agent_steps": agent_steps}
    rows = [{**origin, "updates": updates, "mode": mode, **asdict(result)} for result in results]
    report.save(rows)
    headings = {"error": "error", "cosine": "cosine", "mean_error": "error of the mean"}
    report.show(rows, {"part": "of", "compared": "in", **headings}, _TITLE, digits=4)
    return results


def _settings(run: SavedRun, device: Device) -> LearnerSettings:
    # From a file and not from the environment: to make one, a run's settings may name any code there is.
    spec = load_policy(find_policy(run.path, LAST)).spec
    execution = Execution("eager", "fp32", deterministic=True)
    # Frames in main memory would be drawn one update ahead, and each batch here is drawn from the same state.
    settings = LearnerSettings(
        run.options.agent, spec, run.config.capacity, device, execution, place="device"
    )
    try:
        plan_learners(settings, 1)
    except UserError as error:
        reason = str(error).partition(";")[0]  # what follows is advice for training
        raise UserError(f"{run.path}: its {reason}; use a machine with more memory.") from None
    return settings


def _gradients(run: SavedRun, settings: LearnerSettings, updates: int) -> Gradients:
    """One update of each kind, with as many batches as wanted; the same ones in every precision."""
    release(settings.device)  # the replay of the precision before
    found: Gradients = {}
    with TemporaryDirectory() as folder:
        learner = Learner(
            settings, place="device", seed=_SEED, state_folder=Path(folder), report=lambda _: None
        )
        start, replay = _load(run, learner)
        update = phases_of(learner)["optimise"]  # not `update`, which some methods begin with a burst
        _schedule_next_update(learner, run.agent_steps)
        for _ in range(updates):
            learner.load_state_dict(start)
            learner.load_replay_state_dict(replay)
            update()
            after = learner.state_dict()
            for part, gradient in _by_part(start, after).items():
                if gradient is None:
                    raise UserError(
                        f"{run.path}: in {settings.execution.precision} its next update of the {part} is "
                        "skipped because of non-finite numbers; there is nothing to compare."
                    )
                found.setdefault(part, []).append(gradient)
            start["generator"] = after["generator"]  # another batch next
    return found


def _load(run: SavedRun, learner: Learner) -> tuple[State, State]:
    """Puts what the run has stored into the learner; the states of its agent and of its replay."""
    saved = run.checkpoint.state()
    try:
        # Not the run's own random numbers: those of a GPU mean nothing to a CPU.
        agent = as_tensors(saved["learner"]) | {"generator": learner.state_dict()["generator"]}
        replay = as_tensors(saved["replay"])
        learner.load_replay_state_dict(replay)
        ReplayStore(RunFolder(run.path).replay, run.checkpoint.pieces).restore(learner)
        learner.load_state_dict(agent)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.checkpoint.path} does not fit the settings of its run: {error}; choose another run."
        ) from None
    if not learner.replay.valid_starts(learner.replay.shape.longest_horizon):
        raise UserError(
            f"{run.path}: at agent step {run.agent_steps}, its newest checkpoint, it has no steps to learn "
            "from; train it further."
        )
    return agent, replay


def _schedule_next_update(learner: Learner, agent_steps: int) -> None:
    """Sets what follows a schedule and is no part of a state, like DrQ-v2's noise, for the next update.

    It may also move targets: load the state afterwards.
    """
    agent = learner.agent
    following = next(steps for steps in count(agent_steps + 1) if agent.updates_due(steps))
    with learner.stream():
        list(agent.method.schedule(agent.updates, following, learner.replay))


def _by_part(before: State, after: State) -> dict[str, Tensor | None]:
    """The gradient of every optimiser's step."""
    old, new = (_optimisers(state["tensors"]) for state in (before, after))
    return {part: gradient_between(old[part], new[part]) for part in new}


def gradient_between(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], beta1: float = 0.9
) -> Tensor | None:
    """The clipped gradient of the one step between two states of an optimiser, as one vector.

    None if it took no step, or several.
    """
    if any(after[name] - before[name] != 1 for name in _named(after, "steps.")):
        return None
    moments = _named(after, "first.")
    return torch.cat([(after[name] - beta1 * before[name]).flatten() for name in moments]) / (1.0 - beta1)


def _named(names: Iterable[str], beginning: str) -> list[str]:
    """Those that begin so, behind the number of a group where they have one."""
    return [name for name in names if name.lstrip("0123456789.").startswith(beginning)]


def _optimisers(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Their states, by what they train."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part.endswith(_OPTIMISER):
            found.setdefault(part.removesuffix(_OPTIMISER), {})[rest] = tensor
    return found


def by_chance(exact: Gradients) -> list[PrecisionResult]:
    """Each gradient against that of the next batch; the mean against its own standard error."""
    results = []
    for part, vectors in exact.items():
        error, cosine = _differences(vectors[1:], vectors[:-1])
        mean = _mean(vectors)
        squares = sum(float((vector - mean).square().sum()) for vector in vectors)
        standard_error = math.sqrt(squares / len(vectors) / (len(vectors) - 1))
        results.append(
            PrecisionResult(part, ANOTHER_BATCH, error, cosine, standard_error / float(mean.norm()))
        )
    return results


def by_rounding(precision: str, found: Gradients, exact: Gradients) -> list[PrecisionResult]:
    """Gradients in another precision against those in fp32, of the same batches."""
    results = []
    for part, vectors in exact.items():
        error, cosine = _differences(found[part], vectors)
        right = _mean(vectors)
        mean_error = float((_mean(found[part]) - right).norm() / right.norm())
        results.append(PrecisionResult(part, precision, error, cosine, mean_error))
    return results


def _differences(found: Sequence[Tensor], right: Sequence[Tensor]) -> tuple[float, float]:
    """Mean relative error and mean cosine."""
    pairs = [(ours.double(), theirs.double()) for ours, theirs in zip(found, right, strict=True)]
    errors = [float((ours - theirs).norm() / theirs.norm()) for ours, theirs in pairs]
    cosines = [float(ours @ theirs / (ours.norm() * theirs.norm())) for ours, theirs in pairs]
    return fmean(errors), fmean(cosines)


def _mean(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack(tuple(vectors)).double().mean(0)
