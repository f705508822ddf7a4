"""Agents of any method in worlds whose values are known, and what they have to know in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from ogspr.agents.agent import Agent
from ogspr.agents.protocol import AgentConfig
from ogspr.device import CPU
from ogspr.replay import Replay, ReplayShape
from ogspr.training.graph import make_accelerator
from ogspr.training.options import Execution
from ogspr.types import Action, UInt8Array
from tests.learning.probe_worlds import Choice, World

SLOTS = 400  # of replay
RANDOM_STEPS = 500  # more than fit: the oldest are overwritten
GREEDY_TOLERANCE = 0.1  # how much less than the best action the policy's may be worth
OWN_REWARD = 0.8

# A policy that ran into the end of tanh while values were wrong hardly comes back with the paper's weight.
GENTLE = {"pre_activation_weight": 2e-2}
# In a longer window the first step would be worth what random second steps earn.
ONE_STEP = {"n_step": 1}


@dataclass(frozen=True)
class Lesson:
    """A world to learn, for how long, and how close to the known values that leads."""

    world: type[World]
    choice: type[Choice]
    updates: int
    tolerance: float
    variant: str = "ogspr"
    settings: dict[str, Any] = field(default_factory=dict)  # of the configuration, where not as usual

    def __str__(self) -> str:
        return f"{self.world.__name__}-{self.choice.__name__}-{self.variant}"


class Estimate(NamedTuple):
    """A learned value beside the known one."""

    state: int
    action: Any
    learned: float
    known: float

    @property
    def error(self) -> float:
        return abs(self.learned - self.known)


class Pupil:
    """An agent with its replay, in the world it learns."""

    pixel_range = (-0.5, 0.5)
    decay = 0.5  # the share of the updates in which the learning rate falls to zero: no jitter in the end

    def __init__(self, lesson: Lesson, *, seed: int = 0) -> None:
        self.world = lesson.world(lesson.choice(), seed)
        spec, config = self.world.spec, self.configuration(lesson)
        accelerator = make_accelerator(Execution("eager", "fp32"), CPU)
        self.agent = Agent(config, spec, seed=seed, device=CPU, accelerator=accelerator)
        sizes = (spec.frame_shape, spec.frame_stack, spec.actions.vector_size, config.longest_horizon)
        self.replay = Replay(ReplayShape(SLOTS, *sizes), CPU)
        self.agent_steps = 0
        self.first = True  # whether the episode has just begun
        self.observations: dict[int, UInt8Array] = {}  # of the states it has been in
        self._begin()

    def configuration(self, lesson: Lesson) -> AgentConfig:
        """Of its method, for a lesson in its world."""
        raise NotImplementedError

    def values(self, state: int, action: Action) -> list[float]:
        """Q1 and Q2, in units of reward."""
        raise NotImplementedError

    def step(self) -> float:
        """One step of training, without updates; its reward."""
        observation = self.observations[self.world.state]
        action = self.agent.act_async(observation, first=self.first, agent_steps=self.agent_steps)()
        self.first = False
        step = self.world.step(action)
        self.agent_steps += 1
        self.replay.add(self.agent.action_vector(action), step)
        self.observations[self.world.state] = step.observation
        if step.last:
            self._begin()
        return step.reward

    def learn_from_random_steps(self, updates: int) -> None:
        for _ in range(RANDOM_STEPS):
            self.step()
        for left in range(updates, 0, -1):
            self._slow_down(min(1.0, left / (self.decay * updates)))
            self.agent.update(self.replay, self.agent_steps)

    def learn_from_own_steps(self, updates: int) -> list[float]:
        """As in training; the rewards."""
        rewards = []
        while self.agent.updates < updates:
            rewards.append(self.step())
            for _ in range(self.agent.updates_due(self.agent_steps)):
                self.agent.update(self.replay, self.agent_steps)
        return rewards

    def _slow_down(self, factor: float) -> None:
        """Learns with this share of its learning rates from here on; no method has a setting for it."""
        for learning in self.agent.learning.values():
            for optimiser in learning.optimisers.values():
                for vector in optimiser._vectors:
                    vector.learning_rate.fill_(factor * vector.group.learning_rate)

    def _begin(self) -> None:
        first = self.world.reset()
        self.first = True
        self.replay.begin(first)
        self.observations[self.world.state] = first.observation

    # --- what it has learned --------------------------------------------------------------------

    def scaled(self, pixels: UInt8Array) -> Tensor:
        low, high = self.pixel_range
        return torch.from_numpy(low + (high - low) * pixels.astype(np.float32) / 255.0)

    def image(self, state: int) -> Tensor:
        """What networks see of a state, unshifted: (1, S * C, H, W)."""
        return self.scaled(self.observations[state])[None]

    def vector(self, action: Action) -> Tensor:
        """As networks are given it: (1, A)."""
        return torch.from_numpy(self.agent.action_vector(action))[None]

    def estimates(self) -> list[Estimate]:
        """Both values of every state and probe, beside what they should be."""
        return [
            Estimate(state, action.tolist(), value, self.world.value(state, action))
            for state, action in product(self.world.states, self.world.choice.probes)
            for value in self.values(state, action)
        ]

    def greedy_value(self, state: int) -> float:
        """What the policy's action is worth in truth."""
        asked = self.agent.act_async(
            self.observations[state], first=True, agent_steps=self.agent_steps, explore=False
        )
        return self.world.value(state, asked())


def assert_knows_its_world(pupil: Pupil, tolerance: float) -> None:
    wrong = [estimate for estimate in pupil.estimates() if not estimate.error <= tolerance]
    assert not wrong
    assert_acts_well(pupil)


def assert_acts_well(pupil: Pupil) -> None:
    for state in pupil.world.decisive:
        assert pupil.greedy_value(state) >= 1.0 - GREEDY_TOLERANCE, f"state {state}"


def assert_learns_from_its_own_steps(pupil: Pupil, lesson: Lesson) -> None:
    """The training loop: random steps first, then noisy ones of the policy, with updates as they are due."""
    rewards = pupil.learn_from_own_steps(lesson.updates)
    assert np.mean(rewards[-40:]) > OWN_REWARD  # at random it would be a third
    assert_acts_well(pupil)
    for state in pupil.world.decisive:
        best = pupil.world.choice.best[state]
        assert pupil.values(state, best) == pytest.approx([1.0, 1.0], abs=lesson.tolerance)


def nearest(point: Tensor, candidates: Tensor) -> int:
    """Which of (N, ...) a prediction (1, ...) is closest to."""
    return int((point - candidates).square().flatten(1).sum(1).argmin())
