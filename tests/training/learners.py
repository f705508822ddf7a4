"""Small learners with something in their replay, for tests of how tensor code is run."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ogspr.agents.drqv2 import DrQv2Config
from ogspr.agents.drqv2 import Sizes as DrQv2Sizes
from ogspr.agents.mrq import MRQConfig
from ogspr.agents.mrq import Sizes as MRQSizes
from ogspr.agents.ogspr import OGSPRConfig, Sizes, preset
from ogspr.agents.protocol import AgentConfig
from ogspr.device import Device
from ogspr.training.learner import Learner, LearnerSettings
from ogspr.training.options import Execution, default_execution
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, Place, TimeStep

SMALL = Sizes(
    encoder_channels=16,
    features=64,
    latent=64,
    representation=64,
    state_action_hidden=70,  # no multiple of 8 on purpose
    value_hidden=64,
    policy_hidden=64,
    decoder_inputs=16,
    decoder_channels=(16, 16, 8),
)
CONTINUOUS = EnvSpec("small", (3, 36, 36), 3, ContinuousActions(3), 2, None)
DISCRETE = EnvSpec("small", (1, 36, 36), 4, DiscreteActions(5), 4, None)

LATE = 10**6  # agent steps: long after the random ones
_NOBODY_LOOKS = tempfile.TemporaryDirectory(prefix="ogspr-learners-")  # skipped updates are written there


def small_config(variant: str = "ogspr", **changes: Any) -> OGSPRConfig:
    return replace(preset(variant), sizes=SMALL, batch_size=16, target_period=4, **changes)


OTHER_METHODS: dict[str, MRQConfig | DrQv2Config] = {
    "mrq": MRQConfig(sizes=MRQSizes(16, 64, 32, 70, 64, 64, 64), batch_size=16, target_period=4),
    "drqv2": DrQv2Config(sizes=DrQv2Sizes(16, 24, 64), batch_size=16),
}


def make_learner(
    *,
    execution: Execution | None = None,
    device: str = "cpu",
    seed: int = 0,
    spec: EnvSpec = CONTINUOUS,
    config: AgentConfig | None = None,
    place: Place = "device",
    folder: Path = Path(_NOBODY_LOOKS.name),
    report: Callable[[str], None] = print,
) -> Learner:
    where = Device(torch.device(device))
    settings = LearnerSettings(
        config or small_config(), spec, 200, where, execution or default_execution(where.is_gpu)
    )
    learner = Learner(settings, place=place, seed=seed, state_folder=folder, report=report)
    store_episodes(learner, seed)
    return learner


def store_episodes(
    learner: Learner, seed: int, episodes: int = 5, length: int = 23, reward: float | None = None
) -> None:
    """Random pictures; every second episode ends by a terminal, the others by a truncation."""
    rng = np.random.default_rng(seed)

    def step(terminated: bool = False, truncated: bool = False) -> TimeStep:
        picture = rng.integers(0, 256, learner.spec.observation_shape, dtype=np.uint8)
        given = float(rng.normal()) if reward is None else reward
        return TimeStep(picture, given, 0.0, terminated, truncated, frames=1, proprioception=np.zeros(0))

    for episode in range(episodes):
        learner.begin(step())
        for t in range(length):
            last, terminal = t == length - 1, episode % 2 == 1
            learner.add(learner.spec.actions.sample(rng), step(last and terminal, last and not terminal))


def acted(learner: Learner, images: np.ndarray, agent_steps: int = LATE, explore: bool = True) -> np.ndarray:
    """What it does when it sees one observation, or several."""
    with learner.stream():
        asked = learner.agent.act_async(images, first=False, agent_steps=agent_steps, explore=explore)
    return asked()


def updated(learner: Learner, updates: int = 1) -> dict[str, torch.Tensor]:
    """Its weights after so many updates, which follow late agent steps."""
    for _ in range(updates):
        learner.update(LATE)
    return weights(learner)


def set_learning_rate(learner: Learner, rate: float) -> None:
    """Of everything it trains, from the next update on."""
    with learner.stream():
        for learning in learner.agent.learning.values():
            for optimiser in learning.optimisers.values():
                for vector in optimiser._vectors:
                    vector.learning_rate.fill_(rate)


def metrics(learner: Learner) -> dict[str, float]:
    with learner.stream():
        return learner.agent.metrics()


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Copies of all numbers that learn, of whatever method, on the host; when all updates are done."""
    with learner.stream():
        return {
            f"{place}.{name}": parameter.detach().cpu().clone()
            for place, module in enumerate(learner.agent.method.learned)
            for name, parameter in module.named_parameters()
        }


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The Euclidean distance of two sets of weights."""
    return float(torch.cat([(a[name] - b[name]).double().flatten() for name in a]).norm())
