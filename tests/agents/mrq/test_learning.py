"""The whole method learns worlds whose values are known; on the CPU, in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.ops.values import two_hot
from ogspr.types import Action
from tests.learning.classroom import (
    GENTLE,
    ONE_STEP,
    Lesson,
    Pupil,
    assert_knows_its_world,
    assert_learns_from_its_own_steps,
    nearest,
)
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

SMALL = Sizes(16, 16, 8, 64, 64, 64, 64)
PERIOD = 20
LEARNING_RATE = 2e-3

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
    """An agent of MR.Q."""

    def configuration(self, lesson: Lesson) -> MRQConfig:
        settings = {
            "sizes": SMALL,
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "encoder_learning_rate": LEARNING_RATE,
            "target_period": PERIOD,
            "discount": self.world.discount,
        }
        return replace(MRQConfig(), **(settings | lesson.settings))

    def representation(self, state: int, action: Action) -> Tensor:
        core = self.agent.method.networks.core
        z: Tensor = core.state_action(core.latent(self.image(state)), self.vector(action))
        return z

    def values(self, state: int, action: Action) -> list[float]:
        networks = self.agent.method.networks
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
    world, networks = pupil.world, pupil.agent.method.networks
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
    assert_learns_from_its_own_steps(MRQPupil(ONLINE), ONLINE)
