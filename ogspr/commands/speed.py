"""`ogspr doctor --speed`: how fast training is on this machine, what bounds it, how long a run would take.

Environment, policy and update are measured one by one, as training runs them, and then together. Updates
sample from a short replay buffer: a larger one hardly changes what they cost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from ogspr.agents.agent import make_policy
from ogspr.agents.methods import SMALL
from ogspr.agents.protocol import Policy
from ogspr.commands.declared import Doctor
from ogspr.commands.train import default_preset
from ogspr.device import Device, best_device, configure_threads, usable_cores
from ogspr.envs import gl, launch
from ogspr.envs.trust import current_folder_ignored
from ogspr.training.episodes import EpisodeSlot
from ogspr.training.graph import make_accelerator
from ogspr.training.learner import Learner, LearnerSettings, make_learners
from ogspr.training.options import TrainOptions, default_execution
from ogspr.training.presets import preset_options

_TASK = "dmc:cheetah-run"
_SECONDS = 8.0  # for each of the measurements
_CAPACITY = 2_000  # steps in the replay buffer
_UPDATE_PERIOD = 100  # agent steps over which updates are counted: some methods skip steps


@dataclass(frozen=True)
class Speed:
    """Seconds per agent step, measured, for one seed."""

    environment: float
    policy: float
    update: float  # the updates of one agent step
    training: float  # all of that together, as in training
    evaluation: float  # with all environments of an evaluation side by side
    episode_steps: float  # in an evaluation

    def bound(self) -> tuple[str, float]:
        """What bounds training, and which share of a step it would take alone."""
        parts = {"environment": self.environment, "policy": self.policy, "update": self.update}
        name = max(parts, key=lambda part: parts[part])
        return name, min(1.0, parts[name] / self.training)

    def training_hours(self, options: TrainOptions[Any]) -> float:
        """The first steps are random: they need neither policy nor updates."""
        random_steps = min(int(options.agent.random_steps), options.agent_steps)
        learning = (options.agent_steps - random_steps) * self.training
        return (random_steps * self.environment + learning) / 3600.0

    def evaluation_hours(self, options: TrainOptions[Any]) -> float:
        """There is an evaluation at the start, regularly, and at the end."""
        wanted = options.evaluation
        before_the_last = -(-options.agent_steps // wanted.every)
        episodes = before_the_last * wanted.episodes + (wanted.final_episodes or wanted.episodes)
        return episodes * self.episode_steps * self.evaluation / 3600.0


def show_speed(wanted: Doctor, console: Console) -> Speed:
    """Measures for about a minute; prints each number, what bounds training, and how long a run takes."""
    task, preset = wanted.task or _TASK, wanted.preset or default_preset(wanted.method)
    options, device = preset_options(preset, task), best_device()
    configure_threads(device)
    execution = default_execution(device.is_gpu)
    found: dict[str, float] = {}

    def measure(name: str, run: Callable[[], object], steps: float, detail: str) -> None:
        """`steps`: agent steps in one call of `run`."""
        with console.status(f"measuring: {name}"):
            found[name] = seconds_each(run, device) / steps
        console.print(f"{name:<12}{_rate(found[name]):>8} steps a second   {detail}")

    with current_folder_ignored(), contextlib.ExitStack() as closing:
        (slot,) = _slots(task, options, 1, closing)
        spec = slot.env.spec  # waits until it is built: nothing is printed for one that cannot be
        machine = device.gpu_name or "no GPU"
        console.print(f"{task}, preset {preset}, on {usable_cores()} cores, {machine}")
        settings = LearnerSettings(options.agent, spec, _CAPACITY, device, execution)
        folder = Path(closing.enter_context(TemporaryDirectory()))
        (learner,) = make_learners(settings, [0], [folder], announce=lambda _: None)
        lengths: list[int] = []  # of episodes
        loop = _Loop(slot, learner, options.agent.random_steps, lengths)
        measure("environment", loop.random_step, 1, _renderer())
        measure("policy", loop.act, 1, "one image at a time")
        loop.fill_replay()
        if device.is_gpu:
            console.print("compiling the update, which takes a minute or two")
        how = f"batch size {options.agent.batch_size}, {execution.mode}, {execution.precision}"
        measure("update", loop.update, 1 / loop.updates_per_step, how)
        measure("training", loop.step, 1, "the three together, without evaluation")
        with console.status("starting the environments of an evaluation"):
            slots = _slots(task, options, options.evaluation.environments, closing)
        accelerator = make_accelerator(execution, device)
        policy = make_policy(options.agent, spec, device=device, accelerator=accelerator)
        policy.load_weights(learner.policy_weights())
        evaluation = _Evaluation(slots, policy, lengths)
        measure("evaluation", evaluation.step, len(slots), _side_by_side(len(slots)))
        longest = max(each.agent_steps for each in (slot, *slots))
        speed = Speed(**found, episode_steps=fmean(lengths) if lengths else spec.episode_steps or longest)
    for line in conclusion(speed, options, preset, on_gpu=device.is_gpu):
        console.print(line)
    return speed


def conclusion(speed: Speed, options: TrainOptions[Any], preset: str, *, on_gpu: bool) -> Iterator[str]:
    name, share = speed.bound()
    advice = _advice(name, preset, on_gpu)
    yield f"bound by the {name}, which alone takes {share:.0%} of a step of training. {advice}"
    training, evaluation = speed.training_hours(options), speed.evaluation_hours(options)
    yield (
        f"{options.agent_steps} agent steps take about {_duration(training + evaluation)} here: "
        f"{_duration(training)} of training, {_duration(evaluation)} of evaluation."
    )


def _advice(bound: str, preset: str, on_gpu: bool) -> str:
    decided = gl.decided()
    if bound == "environment" and decided is not None and decided.software:
        return "It is rendered on the CPU; `ogspr doctor` says whether a GPU could do that."
    if on_gpu:
        return "Several seeds in one run (--seeds 1 2 3) make better use of this machine."
    if bound == "environment":
        return "Several runs at a time make better use of many cores."
    return "Use a GPU." if preset == SMALL else f"Use a GPU; without one, --preset {SMALL}."


def _renderer() -> str:
    decided = gl.decided()
    return f"rendered by {decided.renderer} ({decided.name})" if decided else "random actions"


def _side_by_side(count: int) -> str:
    return f"{count} environments side by side" if count > 1 else "one environment"


def _rate(seconds: float) -> str:
    """Three digits are enough, and all that can be trusted."""
    return f"{1 / seconds:.0f}" if seconds < 0.01 else f"{1 / seconds:.3g}"


def _duration(hours: float) -> str:
    if hours < 1.0:
        return f"{60 * hours:.0f} minutes" if hours > 1.5 / 60 else "a minute"
    return f"{hours:.1f} hours" if hours < 48.0 else f"{hours / 24:.1f} days"


def seconds_each(run: Callable[[], object], device: Device) -> float:
    """Calls `run` until the time is up. The first call warms up and does not count."""
    run()
    device.synchronize()
    calls, start = 0, time.perf_counter()
    while not calls or time.perf_counter() - start < _SECONDS:
        run()
        calls += 1
    device.synchronize()
    return (time.perf_counter() - start) / calls


def _slots(
    task: str, options: TrainOptions[Any], count: int, closing: contextlib.ExitStack
) -> list[EpisodeSlot]:
    """Their processes start at the same time: each takes seconds."""
    start = partial(launch, task, options=options.env, worker=options.workers)
    envs = []
    for seed in range(count):
        envs.append(start(seed=seed))
        closing.callback(envs[-1].close)
    slots = [EpisodeSlot(env) for env in envs]
    for slot in slots:
        slot.reset()
    return slots


class _Evaluation:
    """Steps as in an evaluation, without end."""

    def __init__(self, slots: Sequence[EpisodeSlot], policy: Policy, lengths: list[int]) -> None:
        self._slots = slots
        self._policy = policy
        self._lengths = lengths
        self._carry = policy.initial_carry(len(slots))
        self._rng = np.random.default_rng(0)

    def step(self) -> None:
        """A step of each."""
        images = np.stack([slot.observation for slot in self._slots])
        first = np.array([slot.first for slot in self._slots])
        actions, self._carry = self._policy.act(images, self._carry, first, self._rng)
        for slot, action in zip(self._slots, actions, strict=True):
            slot.env.begin_step(action)
        for slot in self._slots:
            if slot.finish_step().last:
                self._lengths.append(slot.agent_steps)
                slot.reset()


class _Loop:
    """An environment and a learner, in the order in which they train."""

    def __init__(self, slot: EpisodeSlot, learner: Learner, random_steps: int, lengths: list[int]) -> None:
        self._slot = slot
        self._learner = learner
        self._lengths = lengths  # of episodes that ended
        self._agent_steps = random_steps  # the next one is not random
        self._rng = np.random.default_rng(0)
        counted = range(random_steps + 1, random_steps + 1 + _UPDATE_PERIOD)
        self.updates_per_step = sum(map(learner.agent.updates_due, counted)) / _UPDATE_PERIOD
        # For methods with several kinds of updates, one of each: that is what they make on average.
        with learner.stream():
            *_, self._whole_update = learner.agent.phases(learner.replay).values()
        learner.begin(slot.reset())

    def update(self) -> None:
        with self._learner.stream():
            self._whole_update()

    def random_step(self) -> None:
        action = self._slot.env.spec.actions.sample(self._rng)
        self._slot.env.begin_step(action)
        self._store(action)

    def act(self) -> None:
        self._ask()()

    def fill_replay(self) -> None:
        """Until updates have enough to sample from."""
        shape = self._learner.replay.shape
        while not self._learner.replay.valid_starts(shape.longest_horizon):
            self.random_step()

    def step(self) -> None:
        """In the order of a trainer's round."""
        self._agent_steps += 1
        answer = self._ask()
        updates = self._learner.agent.updates_due(self._agent_steps)
        if self._learner.asynchronous:
            self._update(updates)
        action = answer()
        self._slot.env.begin_step(action)
        if not self._learner.asynchronous:
            self._update(updates)
        self._store(action)

    def _ask(self) -> Callable[[], Any]:
        slot = self._slot
        with self._learner.stream():
            return self._learner.agent.act_async(
                slot.observation, first=slot.first, agent_steps=self._agent_steps
            )

    def _update(self, count: int) -> None:
        for _ in range(count):
            self.update()

    def _store(self, action: Any) -> None:
        step = self._slot.finish_step()
        self._learner.add(action, step)
        if step.last:
            self._lengths.append(self._slot.agent_steps)
            self._learner.begin(self._slot.reset())
