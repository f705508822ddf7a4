"""The whole method learns worlds whose values are known; on the CPU, in seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ogspr.agents.mrq import MRQAgent, MRQConfig, Sizes
from ogspr.ops.two_hot import two_hot
from ogspr.replay import Replay, ReplayShape
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator
from ogspr.types import Action
from tests.learning.probe_worlds import (
    ActionWorld,
    ChainWorld,
    ConstantWorld,
    ContinuousChoice,
    CueWorld,
    DiscreteChoice,
    EndlessWorld,
    MemoryWorld,
    PictureWorld,
    PlanWorld,
)
from tests.learning.test_probe_worlds import (
    CPU,
    GENTLE,
    GREEDY_TOLERANCE,
    LEARNING_RATE,
    ONE_STEP,
    OWN_REWARD,
    SLOTS,
    Lesson,
    Pupil,
    assert_knows_its_world,
    nearest,
)

SMALL = Sizes(16, 16, 8, 64, 64, 64, 64)
PERIOD = 20

LESSONS = (
    Lesson(ConstantWorld, ContinuousChoice, 60, 0.15, "mrq"),
    Lesson(ConstantWorld, DiscreteChoice, 60, 0.15, "mrq"),
    Lesson(PictureWorld, ContinuousChoice, 80, 0.2, "mrq"),
    Lesson(MemoryWorld, DiscreteChoice, 130, 0.25, "mrq"),
    Lesson(EndlessWorld, ContinuousChoice, 120, 0.3, "mrq"),
    Lesson(ActionWorld, DiscreteChoice, 90, 0.2, "mrq"),
    Lesson(CueWorld, ContinuousChoice, 160, 0.35, "mrq", GENTLE),
    Lesson(CueWorld, DiscreteChoice, 130, 0.25, "mrq"),
    Lesson(PlanWorld, DiscreteChoice, 160, 0.35, "mrq", ONE_STEP),
)
CHAIN = Lesson(ChainWorld, DiscreteChoice, 200, 0.2, "mrq")
ONLINE = Lesson(CueWorld, DiscreteChoice, 160, 0.4, "mrq", {"random_steps": 60})


class MRQPupil(Pupil):
    """An agent of MR.Q with its replay, in the world it learns."""

    agent: MRQAgent

    def __init__(self, lesson: Lesson, *, seed: int = 0) -> None:
        self.world = lesson.world(lesson.choice(), seed)
        spec = self.world.spec
        settings = {
            "sizes": SMALL,
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "encoder_learning_rate": LEARNING_RATE,
            "target_period": PERIOD,
            "discount": self.world.discount,
        }
        config = replace(MRQConfig(), **(settings | lesson.settings))
        accelerator = make_accelerator(Execution("eager", "fp32"), CPU)
        self.agent = MRQAgent(config, spec, seed=seed, device=CPU, accelerator=accelerator)
        sizes = (spec.frame_shape, spec.frame_stack, spec.actions.vector_size, config.longest_horizon)
        self.replay = Replay(ReplayShape(SLOTS, *sizes), CPU)
        self.agent_steps = 0
        self.observations = {}
        self._begin()

    def representation(self, state: int, action: Action) -> Tensor:
        core = self.agent.networks.core
        vector = torch.from_numpy(self.agent.action_vector(action))
        z: Tensor = core.state_action(core.latent(self.image(state)), vector[None])
        return z

    def values(self, state: int, action: Action) -> list[float]:
        """Q1 and Q2, in units of reward."""
        networks = self.agent.networks
        values: Tensor = networks.core.values(self.representation(state, action)) * networks.scale
        return values[:, 0].tolist()


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_values_and_policy_become_the_known_ones(lesson):
    pupil = MRQPupil(lesson)
    pupil.learn_from_random_steps(lesson.updates)
    assert_knows_its_world(pupil, lesson.tolerance)


@torch.no_grad()
def test_the_chain_is_known_to_values_and_to_the_model():
    """Values reach back beyond the window; the model knows the next state, the reward and the end."""
    with torch.enable_grad():
        pupil = MRQPupil(CHAIN)
        pupil.learn_from_random_steps(CHAIN.updates)
    assert_knows_its_world(pupil, CHAIN.tolerance)
    world, networks = pupil.world, pupil.agent.networks
    action = world.choice.probes[0]
    states = (*world.states, world.states[-1] + 1)
    latents = torch.cat([networks.target_core.latent(pupil.image(state)) for state in states])
    for place, state in enumerate(world.states):
        predicted = networks.model(pupil.representation(state, action))
        last = state == world.states[-1]
        assert nearest(predicted.h, latents) == place + 1
        assert float(predicted.done) == pytest.approx(float(last), abs=0.35)
        code = two_hot(torch.tensor([float(last)]), networks.model.bins)
        assert (predicted.reward.softmax(1) - code).abs().sum() / 2 <= 0.3


def test_learns_from_what_it_does_itself():
    """The training loop: random steps first, then noisy ones of the policy, with an update after each."""
    pupil = MRQPupil(ONLINE)
    rewards = pupil.learn_from_own_steps(ONLINE.updates)
    assert np.mean(rewards[-40:]) > OWN_REWARD  # at random it would be a third
    for state in pupil.world.decisive:
        assert pupil.greedy_value(state) >= 1.0 - GREEDY_TOLERANCE
        assert pupil.values(state, pupil.world.choice.best[state]) == pytest.approx(
            [1.0, 1.0], abs=ONLINE.tolerance
        )
