"""Learners with full replay buffers, and their updates as benchmarks run them.

The buffers hold random bytes: what an update costs does not depend on what the images show.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.commands import TrainingUpdate
from benchmarks.harness import in_turns, seconds
from ogspr.agents.protocol import Step
from ogspr.device import Device
from ogspr.errors import require_positive, unknown
from ogspr.replay import Replay
from ogspr.training.graph import set_matrix_precision
from ogspr.training.learner import Learner, LearnerSettings, make_learners
from ogspr.training.options import Execution, default_execution
from ogspr.training.presets import preset_options
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, TimeStep

CPU_BATCH_SIZE = 16
_EPISODE = 500
_CAPACITY = {"cuda": 100_000, "cpu": 2_000}
_SHARED_POOL = (0, 0)  # torch's number for memory that belongs to no graph
_SUITES = {  # a task whose settings are used, and its sizes
    "dmc": (
        "dmc:cheetah-run",
        EnvSpec("cheetah-run sizes", (3, 84, 84), 3, ContinuousActions(6), 2, _EPISODE),
    ),
    "atari100k": ("atari:Pong", EnvSpec("Atari sizes", (1, 84, 84), 4, DiscreteActions(18), 4, _EPISODE)),
}


@dataclass(frozen=True)
class Contender:
    """One way of running updates."""

    preset: str
    suite: str
    execution: Execution
    learners: int
    batch_size: int
    capacity: int  # steps in each replay buffer

    def __str__(self) -> str:
        return (
            f"{self.execution.mode} {self.execution.precision}, learners: {self.learners}, "
            f"batch size {self.batch_size}, {self.capacity} steps in replay"
        )

    def row(self) -> dict[str, object]:
        """As columns of a csv file."""
        return {
            "preset": self.preset,
            "suite": self.suite,
            "batch_size": self.batch_size,
            "capacity": self.capacity,
            "mode": self.execution.mode,
            "precision": self.execution.precision,
            "learners": self.learners,
        }

    def settings(self, device: Device) -> LearnerSettings:
        task, spec = _SUITES[self.suite]
        config = replace(preset_options(self.preset, task).agent, batch_size=self.batch_size)
        return LearnerSettings(config, spec, self.capacity, device, self.execution)


def default_batch_size(preset: str, suite: str, device: Device) -> int:
    """The preset's; on a CPU one with which minutes suffice. Refuses names that do not exist."""
    if suite not in _SUITES:
        raise unknown("suite", suite, _SUITES)
    config = preset_options(preset, _SUITES[suite][0]).agent
    return int(config.batch_size) if device.is_gpu else CPU_BATCH_SIZE


def default_capacity(device: Device) -> int:
    return _CAPACITY[device.kind]


def as_in_training(wanted: TrainingUpdate, device: Device) -> Contender:
    """An update in the mode and precision in which it runs in training."""
    require_positive(learners=wanted.learners, batch_size=wanted.batch_size)
    batch_size = wanted.batch_size or default_batch_size(wanted.preset, wanted.suite, device)
    execution = default_execution(device.is_gpu)
    capacity = default_capacity(device)
    return Contender(wanted.preset, wanted.suite, execution, wanted.learners, batch_size, capacity)


@contextmanager
def ready_learners(
    contender: Contender, device: Device, announce: Callable[[str], None]
) -> Iterator[list[Learner]]:
    """Learners with full replay buffers; announces how much memory those take."""
    count = contender.learners
    with TemporaryDirectory() as folder:
        settings = contender.settings(device)
        learners = make_learners(settings, range(count), [Path(folder)] * count, announce=announce)
        for seed, learner in enumerate(learners):
            fill(learner, seed)
        yield learners


def fill(learner: Learner, seed: int) -> None:
    """Random bytes, actions and rewards in the whole buffer, as if episodes had been stored."""
    replay, spec, rng = learner.replay, learner.spec, np.random.default_rng(seed)
    steps = min(replay.shape.capacity, replay.shape.frame_stack + 2 * replay.shape.longest_horizon) - 1
    blank = np.zeros(spec.observation_shape, np.uint8)
    step = TimeStep(blank, 0.0, 0.0, False, False, spec.action_repeat, np.zeros(0))
    learner.begin(step)
    for _ in range(steps):  # through `add`, so that the buffer knows that it can be sampled
        learner.add(spec.actions.sample(rng), step)
    with learner.stream():
        _fill_tensors(replay, seed)


def _fill_tensors(replay: Replay, seed: int) -> None:
    capacity, device = replay.shape.capacity, replay.numbers.device
    generator = torch.Generator(device).manual_seed(seed)
    replay.frames.random_(0, 256, generator=generator)
    replay.numbers.uniform_(-1.0, 1.0, generator=generator)
    replay.numbers[:, -1] = 0.0  # nothing is terminal
    age = torch.arange(capacity, device=device) % (_EPISODE + 1)
    replay.age.copy_(age)
    replay.reach.copy_((_EPISODE - age).clamp(max=replay.shape.longest_horizon))
    replay.reach[-replay.shape.longest_horizon :] = 0
    replay.priority.uniform_(1.0, 3.0, generator=generator)
    replay.count.fill_(capacity)  # the last slot holds the newest observation


def phases_of(learner: Learner) -> dict[str, Callable[[], None]]:
    """An update cut off after each of its phases, on the learner's stream."""
    with learner.stream():
        steps = learner.agent.phases(learner.replay)
    return {name: partial(_run_on_stream, learner, step) for name, step in steps.items()}


def _run_on_stream(learner: Learner, step: Step) -> None:
    with learner.stream():
        step()


def whole_update(learners: Sequence[Learner]) -> Callable[[], None]:
    """One update of every learner. Of methods with several kinds of updates one of each, which is what they
    make on average."""
    updates = [list(phases_of(learner).values())[-1] for learner in learners]

    def update_all() -> None:
        for update in updates:
            update()

    return update_all


def update_rounds(
    update: Callable[[], None], contender: Contender, device: Device, *, updates: int, rounds: int
) -> list[float]:
    """Milliseconds per update, for each round."""
    set_matrix_precision(contender.execution.precision)

    def block() -> None:
        for _ in range(updates):
            update()

    (times,) = in_turns({"update": partial(seconds, block, device)}, rounds).values()
    return [1000.0 * took / updates for took in times]


def release(device: Device) -> None:
    """Frees what earlier measurements held, and forgets their peak."""
    gc.collect()
    if device.is_gpu:
        torch._C._cuda_clearCublasWorkspaces()  # torch keeps one for each stream that ever multiplied
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device.torch)


def peak_memory(device: Device) -> int:
    """The most bytes of a GPU that torch has reserved since `release`, used or not; 0 on a CPU."""
    return torch.cuda.max_memory_reserved(device.torch) if device.is_gpu else 0


def held_memory(device: Device) -> int:
    """Bytes of a GPU that tensors and graphs of this process hold; 0 on a CPU."""
    if not device.is_gpu:
        return 0
    index = torch.cuda.current_device() if device.torch.index is None else device.torch.index
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return held_bytes(segment for segment in segments if segment["device"] == index)


def held_bytes(segments: Iterable[Mapping[str, Any]]) -> int:
    """Bytes held in torch's segments: those of a graph's own pool as a whole, of others what tensors live in.

    Nobody else can use a graph's pool, even while no tensor lives there because the graph is not running.
    What is free elsewhere goes to whoever asks next, even where torch cannot return it to the device because
    a small tensor next to it lives on.
    """
    held = 0
    for segment in segments:
        shared = tuple(segment["segment_pool_id"]) == _SHARED_POOL
        held += segment["allocated_size" if shared else "total_size"]
    return held


@dataclass(frozen=True)
class Memory:
    """Bytes on the device for all learners of a contender."""

    networks_bytes: int  # those that learn, and those that targets come from
    optimisers_bytes: int
    replay_bytes: int
    working_bytes: int  # the rest, all the time: batches, activations, gradients, what a graph keeps
    momentary_bytes: int  # the peak above all that: libraries try kernels at the start

    @staticmethod
    def of(learners: Sequence[Learner], held: int, peak: int) -> Memory:
        """`held`, `peak`: what they add to `held_memory` and `peak_memory`; 0 without a GPU."""
        networks = optimisers = replay = 0
        for learner in learners:
            for name, tensor in learner.agent.state_dict()["tensors"].items():
                if "optimiser" in name.partition(".")[0]:
                    optimisers += tensor.nbytes
                else:
                    networks += tensor.nbytes
            replay += _replay_bytes(learner)
        working = held - networks - optimisers - replay if held else 0
        return Memory(networks, optimisers, replay, working, peak - held)


def _replay_bytes(learner: Learner) -> int:
    """On the device: frames in main memory do not count."""
    replay = learner.replay
    tensors = [replay.numbers, replay.age, replay.reach, replay.priority]
    tensors += [replay.frames] if learner.place == "device" else []
    return sum(tensor.nbytes for tensor in tensors)
