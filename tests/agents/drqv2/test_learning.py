"""The whole agent learns worlds whose values are known; on the CPU, in seconds.

Tolerances leave room for other seeds.
"""

from __future__ import annotations

import pytest
import torch

from ogspr.agents.drqv2 import DrQv2Config, Sizes
from ogspr.types import Action
from tests.learning.classroom import (
    ONE_STEP,
    Lesson,
    Pupil,
    assert_knows_its_world,
    assert_learns_from_its_own_steps,
)
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
)

LEARNING_RATE = 1e-3
# A policy runs into the end of tanh while values are wrong. It comes back from there, but late; with few
# features, soon enough to wait for it.
FEW_FEATURES = {"sizes": Sizes(8, 4, 64)}
LESSONS = (
    Lesson(ConstantWorld, ContinuousChoice, 60, 0.15, "drqv2"),
    Lesson(PictureWorld, ContinuousChoice, 80, 0.2, "drqv2"),
    Lesson(MemoryWorld, ContinuousChoice, 120, 0.2, "drqv2"),
    Lesson(ChainWorld, ContinuousChoice, 150, 0.2, "drqv2"),
    Lesson(EndlessWorld, ContinuousChoice, 150, 0.2, "drqv2"),
    Lesson(ActionWorld, ContinuousChoice, 800, 0.1, "drqv2", FEW_FEATURES),
    Lesson(CueWorld, ContinuousChoice, 180, 0.35, "drqv2"),
    Lesson(PlanWorld, ContinuousChoice, 150, 0.35, "drqv2", ONE_STEP),
)
ONLINE = Lesson(CueWorld, ContinuousChoice, 150, 0.4, "drqv2", {"random_steps": 60, "noise_steps": 200})


class DrQv2Pupil(Pupil):
    """An agent of DrQ-v2."""

    decay = 0.25

    def configuration(self, lesson: Lesson) -> DrQv2Config:
        settings = {
            "sizes": Sizes(8, 16, 64),
            "batch_size": 16,
            "learning_rate": LEARNING_RATE,
            "target_rate": 0.1,
            "discount": self.world.discount,
            "noise_steps": 1,
        }
        return DrQv2Config(**settings | lesson.settings)

    @torch.no_grad()
    def values(self, state: int, action: Action) -> list[float]:
        network = self.agent.method.networks.value
        h = network.critic.trunk(network.latent(self.image(state)))
        return network.critic.values(h, self.vector(action))[:, 0].tolist()


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_values_and_policy_become_the_known_ones(lesson):
    pupil = DrQv2Pupil(lesson)
    pupil.learn_from_random_steps(lesson.updates)
    assert_knows_its_world(pupil, lesson.tolerance)


def test_learns_from_what_it_does_itself():
    assert_learns_from_its_own_steps(DrQv2Pupil(ONLINE), ONLINE)
