"""The whole agent learns worlds whose values are known; on the CPU, in seconds.

Tolerances leave room for other seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from ogspr.agents.drqv2 import DrQv2Agent, DrQv2Config, Sizes
from ogspr.replay import Replay, ReplayShape
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator
from ogspr.types import Action, UInt8Array
from tests.learning.probe_worlds import (
    ActionWorld,
    ChainWorld,
    ConstantWorld,
    ContinuousChoice,
    CueWorld,
    EndlessWorld,
    MemoryWorld,
    PictureWorld,
    PlanWorld,
    World,
)

CPU = torch.device("cpu")
LEARNING_RATE = 1e-3
SLOTS = 400  # of replay
RANDOM_STEPS = 500  # more than fit: the oldest are overwritten
GREEDY_TOLERANCE = 0.1  # how much less than the best action the policy's may be worth
OWN_REWARD = 0.8


@dataclass(frozen=True)
class Lesson:
    """A world to learn, for how long, and how close to the known values that leads."""

    world: type[World]
    updates: int
    tolerance: float
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.world.__name__


# In a longer window the first step would be worth what random second steps earn.
ONE_STEP = {"n_step": 1}
# A policy runs into the end of tanh while values are wrong. It comes back from there, but late; with few
# features, soon enough to wait for it.
FEW_FEATURES = {"sizes": Sizes(8, 4, 64)}
LESSONS = (
    Lesson(ConstantWorld, 60, 0.15),
    Lesson(PictureWorld, 80, 0.2),
    Lesson(MemoryWorld, 120, 0.2),
    Lesson(ChainWorld, 150, 0.2),
    Lesson(EndlessWorld, 150, 0.2),
    Lesson(ActionWorld, 800, 0.1, FEW_FEATURES),
    Lesson(CueWorld, 180, 0.35),
    Lesson(PlanWorld, 150, 0.35, ONE_STEP),
)
ONLINE = Lesson(CueWorld, 150, 0.4, {"random_steps": 60, "noise_steps": 200})


class Pupil:
    """An agent with its replay, in the world it learns."""

    def __init__(self, lesson: Lesson, seed: int = 0) -> None:
        self.world = lesson.world(ContinuousChoice(), seed)
        spec = self.world.spec
        settings = {
            "sizes": Sizes(8, 16, 64),
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "target_rate": 0.1,
            "discount": self.world.discount,
            "noise_steps": 1,
        }
        config = DrQv2Config(**settings | lesson.settings)
        accelerator = make_accelerator(Execution("eager", "fp32"), CPU)
        self.agent = DrQv2Agent(config, spec, seed=seed, device=CPU, accelerator=accelerator)
        sizes = (spec.frame_shape, spec.frame_stack, spec.actions.vector_size, config.longest_horizon)
        self.replay = Replay(ReplayShape(SLOTS, *sizes), CPU)
        self.agent_steps = 0
        self.observations: dict[int, UInt8Array] = {}  # of the states it has been in
        self._begin()

    def step(self) -> float:
        """One step of training, without updates; its reward."""
        observation = self.observations[self.world.state]
        action = self.agent.act(observation, agent_steps=self.agent_steps, explore=True)
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
            # Falls to zero in the last quarter, so that it ends without jitter.
            self.agent.set_learning_rate(LEARNING_RATE * min(1.0, 4.0 * left / updates))
            self.agent.update(self.replay)

    def learn_from_own_steps(self, updates: int) -> list[float]:
        """As in training; the rewards."""
        rewards = []
        while self.agent.updates < updates:
            rewards.append(self.step())
            for _ in range(self.agent.updates_due(self.agent_steps)):
                self.agent.update(self.replay)
        return rewards

    @torch.no_grad()
    def values(self, state: int, action: Action) -> list[float]:
        network = self.agent.value_network
        image = torch.from_numpy(self.observations[state].astype(np.float32) / 255.0 - 0.5)[None]
        h = network.critic.trunk(network.latent(image))
        return network.critic.values(h, torch.from_numpy(action)[None])[:, 0].tolist()

    def errors(self) -> dict[tuple[int, float], float]:
        """Of the worse of both values, by state and action."""
        return {
            (state, float(action[0])): max(
                abs(value - self.world.value(state, action)) for value in self.values(state, action)
            )
            for state, action in product(self.world.states, self.world.choice.probes)
        }

    def greedy_value(self, state: int) -> float:
        """What the policy's action is worth in truth."""
        action = self.agent.act(self.observations[state], agent_steps=self.agent_steps, explore=False)
        return self.world.value(state, action)

    def _begin(self) -> None:
        first = self.world.reset()
        self.replay.begin(first)
        self.observations[self.world.state] = first.observation


def assert_acts_well(pupil: Pupil) -> None:
    for state in pupil.world.decisive:
        assert pupil.greedy_value(state) >= 1.0 - GREEDY_TOLERANCE, f"state {state}"


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_values_and_policy_become_the_known_ones(lesson):
    pupil = Pupil(lesson)
    pupil.learn_from_random_steps(lesson.updates)
    assert max(pupil.errors().values()) <= lesson.tolerance, pupil.errors()
    assert_acts_well(pupil)


def test_learns_from_what_it_does_itself():
    """The training loop: random steps first, then noisy ones, with an update after every second."""
    pupil = Pupil(ONLINE)
    rewards = pupil.learn_from_own_steps(ONLINE.updates)
    assert np.mean(rewards[-40:]) > OWN_REWARD  # at random it would be a third
    assert_acts_well(pupil)
