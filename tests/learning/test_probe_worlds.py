"""The whole agent, every loss on, learns worlds whose values are known; on the CPU, in seconds.

Tolerances leave room for other seeds; without the part of the method a world is about, errors are larger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from ogspr.agents.ogspr import OGSPRAgent, preset
from ogspr.agents.ogspr.config import Sizes
from ogspr.ops.two_hot import two_hot
from ogspr.replay import Replay, ReplayShape
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator
from ogspr.types import Action, UInt8Array
from tests.learning.probe_worlds import (
    ActionWorld,
    ChainWorld,
    Choice,
    ConstantWorld,
    ContinuousChoice,
    CueWorld,
    DiscreteChoice,
    EndlessWorld,
    MemoryWorld,
    PictureWorld,
    PlanWorld,
    World,
    picture,
)

CPU = torch.device("cpu")
SMALL = Sizes(
    encoder_channels=16,
    features=16,
    latent=16,
    representation=64,
    state_action_hidden=64,
    value_hidden=64,
    policy_hidden=64,
    decoder_channels=16,
)
LEARNING_RATE = 2e-3
SLOTS = 400  # of replay
RANDOM_STEPS = 500  # more than fit: the oldest are overwritten
GREEDY_TOLERANCE = 0.1  # how much less than the best action the policy's may be worth
OWN_REWARD = 0.8
MISPLACED_TOLERANCE = 0.3  # probability that the short-term value puts into wrong bins


@dataclass(frozen=True)
class Lesson:
    """A world to learn, for how long, and how close to the known values that leads."""

    world: type[World]
    choice: type[Choice]
    updates: int
    tolerance: float
    variant: str = "ogspr"
    settings: dict[str, Any] = field(default_factory=dict)  # of the configuration, where not as in Pupil

    def __str__(self) -> str:
        return f"{self.world.__name__}-{self.choice.__name__}-{self.variant}"


# A policy that ran into the end of tanh while values were wrong hardly comes back with the paper's weight.
GENTLE = {"pre_activation_weight": 2e-2}
# In a longer window the first step would be worth what random second steps earn.
ONE_STEP = {"n_step": 1}
# So that predicted pictures can be told apart.
LARGER_DECODER = {"sizes": replace(SMALL, decoder_channels=64)}

CHAINS = (
    Lesson(ChainWorld, ContinuousChoice, 160, 0.2, settings=LARGER_DECODER),
    Lesson(ChainWorld, DiscreteChoice, 160, 0.2, settings=LARGER_DECODER),
)
LESSONS = (
    Lesson(ConstantWorld, ContinuousChoice, 60, 0.15),
    Lesson(ConstantWorld, DiscreteChoice, 60, 0.15),
    Lesson(ConstantWorld, ContinuousChoice, 60, 0.15, "ogspr-sp"),
    Lesson(ConstantWorld, DiscreteChoice, 60, 0.15, "anonmethod"),
    Lesson(PictureWorld, ContinuousChoice, 70, 0.2),
    Lesson(PictureWorld, DiscreteChoice, 70, 0.2),
    Lesson(MemoryWorld, DiscreteChoice, 130, 0.2),
    Lesson(EndlessWorld, ContinuousChoice, 100, 0.2),
    Lesson(EndlessWorld, DiscreteChoice, 100, 0.2),
    Lesson(ActionWorld, ContinuousChoice, 200, 0.15, settings=GENTLE),
    Lesson(ActionWorld, DiscreteChoice, 80, 0.2),
    Lesson(CueWorld, ContinuousChoice, 160, 0.35, settings=GENTLE),
    Lesson(CueWorld, DiscreteChoice, 150, 0.2),
    Lesson(CueWorld, ContinuousChoice, 200, 0.35, "ogspr-sp", settings=GENTLE),
    Lesson(CueWorld, DiscreteChoice, 150, 0.2, "anonmethod"),
    Lesson(PlanWorld, ContinuousChoice, 160, 0.35, settings=GENTLE | ONE_STEP),
    Lesson(PlanWorld, DiscreteChoice, 160, 0.35, settings=ONE_STEP),
)
# Few random steps, so that most of what is learned from is the policy's own.
ONLINE = (
    Lesson(CueWorld, ContinuousChoice, 120, 0.4, settings=GENTLE | {"random_steps": 60}),
    Lesson(CueWorld, DiscreteChoice, 120, 0.4, settings={"random_steps": 60}),
)


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

    def __init__(self, lesson: Lesson, *, seed: int = 0) -> None:
        self.world = lesson.world(lesson.choice(), seed)
        spec = self.world.spec
        settings = {
            "sizes": SMALL,
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "target_period": 20,
            "discount": self.world.discount,
        }
        config = replace(preset(lesson.variant), **(settings | lesson.settings))
        accelerator = make_accelerator(Execution("eager", "fp32"), CPU)
        self.agent = OGSPRAgent(config, spec, seed=seed, device=CPU, accelerator=accelerator)
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
            # Falls to zero in the second half, so that it ends without jitter.
            self.agent.set_learning_rate(LEARNING_RATE * min(1.0, 2.0 * left / updates))
            self.agent.update(self.replay)

    def learn_from_own_steps(self, updates: int) -> list[float]:
        """As in training; the rewards."""
        rewards = []
        while self.agent.updates < updates:
            rewards.append(self.step())
            for _ in range(self.agent.updates_due(self.agent_steps)):
                self.agent.update(self.replay)
        return rewards

    def _begin(self) -> None:
        first = self.world.reset()
        self.replay.begin(first)
        self.observations[self.world.state] = first.observation

    # --- what it has learned --------------------------------------------------------------------

    def scaled(self, pixels: UInt8Array) -> Tensor:
        low, high = self.agent.config.pixel_range
        return torch.from_numpy(low + (high - low) * pixels.astype(np.float32) / 255.0)

    def image(self, state: int) -> Tensor:
        """What networks see of a state, unshifted: (1, S * C, H, W)."""
        return self.scaled(self.observations[state])[None]

    def representation(self, state: int, action: Action) -> Tensor:
        """z: (1, Z)."""
        core = self.agent.value_network.core
        vector = torch.from_numpy(self.agent.action_vector(action))
        z: Tensor = core.state_action(core.latent(self.image(state)), vector[None])
        return z

    def values(self, state: int, action: Action) -> list[float]:
        """Q1 and Q2."""
        values: Tensor = self.agent.value_network.core.values(self.representation(state, action))
        return values[:, 0].tolist()

    def estimates(self) -> list[Estimate]:
        """Both values of every state and probe, beside what they should be."""
        return [
            Estimate(state, action.tolist(), value, self.world.value(state, action))
            for state, action in product(self.world.states, self.world.choice.probes)
            for value in self.values(state, action)
        ]

    def greedy_value(self, state: int) -> float:
        """What the policy's action is worth in truth."""
        action = self.agent.act(self.observations[state], agent_steps=self.agent_steps, explore=False)
        return self.world.value(state, action)


def assert_knows_its_world(pupil: Pupil, tolerance: float) -> None:
    wrong = [estimate for estimate in pupil.estimates() if not estimate.error <= tolerance]
    assert not wrong
    for state in pupil.world.decisive:
        assert pupil.greedy_value(state) >= 1.0 - GREEDY_TOLERANCE, f"state {state}"


@pytest.fixture(scope="module", params=CHAINS, ids=str)
def chain(request: pytest.FixtureRequest) -> Pupil:
    """One that has learned the chain."""
    pupil = Pupil(request.param)
    pupil.learn_from_random_steps(request.param.updates)
    return pupil


@pytest.mark.parametrize("lesson", [*LESSONS, *CHAINS], ids=str)
def test_the_known_values_are_what_steps_lead_to(lesson):
    """Bellman's equation."""
    world = lesson.world(lesson.choice(), seed=0)
    choice = world.choice
    for state, action in product(world.states, choice.probes):
        reward, after, terminated = world.outcome(state, action)
        candidates = (*choice.probes, *choice.best.values())
        future = 0.0 if terminated else max(world.value(after, candidate) for candidate in candidates)
        assert world.value(state, action) == pytest.approx(reward + world.discount * future)


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_values_and_policy_become_the_known_ones(lesson):
    pupil = Pupil(lesson)
    pupil.learn_from_random_steps(lesson.updates)
    assert_knows_its_world(pupil, lesson.tolerance)


def test_values_reach_back_beyond_the_window(chain):
    assert_knows_its_world(chain, CHAINS[0].tolerance)


@torch.no_grad()
def test_auxiliary_heads_know_what_comes_next(chain):
    """The next frame, the next latent state and the rewards of three steps, in every state of the chain."""
    world, agent, heads = chain.world, chain.agent, chain.agent.value_network.heads
    states, action = (*world.states, world.states[-1] + 1), world.choice.probes[0]
    frames = torch.stack([chain.scaled(picture(state)) for state in states])
    latents = torch.cat([agent.target_core.latent(chain.image(state)) for state in states])
    for place, state in enumerate(world.states):
        z = chain.representation(state, action)
        assert nearest(heads["observation"](z), frames) == place + 1
        assert nearest(heads["self_prediction"](z), latents) == place + 1
        short_return = world.value(state, action) if len(world.states) - place <= 3 else 0.0
        code = two_hot(torch.tensor([short_return]), heads["short_term_value"].bins)
        misplaced = (heads["short_term_value"](z).softmax(1) - code).abs().sum() / 2
        assert misplaced <= MISPLACED_TOLERANCE


def nearest(point: Tensor, candidates: Tensor) -> int:
    """Which of (N, ...) a prediction (1, ...) is closest to."""
    return int((point - candidates).square().flatten(1).sum(1).argmin())


@pytest.mark.parametrize("lesson", ONLINE, ids=str)
def test_learns_from_what_it_does_itself(lesson):
    """The training loop: random steps first, then noisy ones of the policy, with an update after each."""
    pupil = Pupil(lesson)
    rewards = pupil.learn_from_own_steps(lesson.updates)
    assert np.mean(rewards[-40:]) > OWN_REWARD  # at random it would be a third
    for state in pupil.world.decisive:
        assert pupil.greedy_value(state) >= 1.0 - GREEDY_TOLERANCE
        best = pupil.world.choice.best[state]
        assert pupil.values(state, best) == pytest.approx([1.0, 1.0], abs=lesson.tolerance)
