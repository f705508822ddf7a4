"""The whole agent, every loss on, learns worlds whose values are known; on the CPU, in seconds.

Tolerances leave room for other seeds; without the part of the method a world is about, errors are larger.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from ogspr.agents.ogspr import preset
from ogspr.agents.ogspr.config import OGSPRConfig, Sizes
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
    picture,
)

SMALL = Sizes(
    encoder_channels=16,
    features=16,
    latent=16,
    representation=64,
    state_action_hidden=64,
    value_hidden=64,
    policy_hidden=64,
    decoder_inputs=16,
    decoder_channels=(16, 16, 8),
)
LEARNING_RATE = 2e-3
MISPLACED_TOLERANCE = 0.3  # probability that the short-term value puts into wrong bins
# So that predicted pictures can be told apart.
LARGER_DECODER = {"sizes": replace(SMALL, decoder_inputs=64, decoder_channels=(32, 32, 16))}

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


class OGSPRPupil(Pupil):
    """An agent of a variant of OG-SPR."""

    def configuration(self, lesson: Lesson) -> OGSPRConfig:
        settings = {
            "sizes": SMALL,
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "target_period": 20,
            "discount": self.world.discount,
        }
        return replace(preset(lesson.variant), **(settings | lesson.settings))

    def representation(self, state: int, action: Action) -> Tensor:
        """z: (1, Z)."""
        core = self.agent.method.networks.value.core
        z: Tensor = core.state_action(core.latent(self.image(state)), self.vector(action))
        return z

    def grounded(self, state: int, action: Action) -> Tensor:
        """z_aux, which decoder and short-term value see: (1, Z)."""
        core = self.agent.method.networks.value.core
        z: Tensor = core.state_action(core.encoder(self.image(state)), self.vector(action))
        return z

    def values(self, state: int, action: Action) -> list[float]:
        values: Tensor = self.agent.method.networks.value.core.values(self.representation(state, action))
        return values[:, 0].tolist()


@pytest.fixture(scope="module", params=CHAINS, ids=str)
def chain(request: pytest.FixtureRequest) -> OGSPRPupil:
    """One that has learned the chain."""
    pupil = OGSPRPupil(request.param)
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
    pupil = OGSPRPupil(lesson)
    pupil.learn_from_random_steps(lesson.updates)
    assert_knows_its_world(pupil, lesson.tolerance)


def test_values_reach_back_beyond_the_window(chain):
    assert_knows_its_world(chain, CHAINS[0].tolerance)


@torch.no_grad()
def test_auxiliary_heads_know_what_comes_next(chain):
    """The next frame, the next latent state and the rewards of three steps, in every state of the chain."""
    world, networks = chain.world, chain.agent.method.networks
    heads = networks.value.heads
    states, action = (*world.states, world.states[-1] + 1), world.choice.probes[0]
    frames = torch.stack([chain.scaled(picture(state)) for state in states])
    latents = torch.cat([networks.target_core.latent(chain.image(state)) for state in states])
    for place, state in enumerate(world.states):
        z, grounded = chain.representation(state, action), chain.grounded(state, action)
        assert nearest(heads["observation"](grounded), frames) == place + 1
        assert nearest(heads["self_prediction"](z), latents) == place + 1
        short_return = world.value(state, action) if len(world.states) - place <= 3 else 0.0
        code = two_hot(torch.tensor([short_return]), heads["short_term_value"].bins)
        misplaced = (heads["short_term_value"](grounded).softmax(1) - code).abs().sum() / 2
        assert misplaced <= MISPLACED_TOLERANCE


@pytest.mark.parametrize("lesson", ONLINE, ids=str)
def test_learns_from_what_it_does_itself(lesson):
    assert_learns_from_its_own_steps(OGSPRPupil(lesson), lesson)
