"""Small agents with a watched replay, and one update beside the reference's."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ogspr.agents.drqv2 import DrQv2Config, Sizes
from ogspr.agents.drqv2.agent import DrQv2Agent
from ogspr.types import EnvSpec
from tests.agents import scene as shared
from tests.agents.drqv2 import reference
from tests.agents.scene import CPU, Recording, filled_replay, make_spec, windows
from tests.agents.scene import arrays as part_arrays
from tests.agents.states import move_all

SMALL = Sizes(encoder_channels=6, features=10, hidden=24)
NETWORKS = ("value_network", "policy", "target_critic")
UPDATES = 7  # that a scrambled agent believes it has made
SPEC = make_spec("continuous")


def small_config(**changes: Any) -> DrQv2Config:
    small = {"sizes": SMALL, "batch_size": 16, "random_steps": 20, "noise_steps": 100}
    return DrQv2Config(**small | changes)


def make_agent(config: DrQv2Config, spec: EnvSpec = SPEC, seed: int = 0) -> DrQv2Agent:
    return DrQv2Agent(config, spec, seed=seed, device=CPU, accelerator=Recording())


def scramble(agent: DrQv2Agent, seed: int = 0, size: float = 0.1) -> None:
    """As if it had made some updates."""
    move_all(agent, NETWORKS, UPDATES, seed, size)


class Watched(shared.Watched):
    """A replay that remembers the last windows, and whether drawing was finished."""

    finished = 0

    def finish_drawing(self) -> None:
        self.finished += 1
        self.replay.finish_drawing()


def scene(*, side: int = 36, reward: float = 3.0, **changes: Any) -> tuple[DrQv2Agent, Watched]:
    """A scrambled agent and a replay with every kind of ending."""
    spec = make_spec("continuous", side)
    agent = make_agent(small_config(**changes), spec)
    scramble(agent)
    return agent, Watched(filled_replay(agent, spec, reward=reward))


# --- from the agent's world to the reference's ------------------------------------------------------

RENAMED = (
    (r"^encoder\.first\.", "conv0."),
    (r"^encoder\.later\.(\d)\.", lambda found: f"conv{int(found[1]) + 1}."),
    (r"^(critic\.)?trunk\.linear\.", "trunk."),
    (r"^(critic\.)?trunk\.norm\.", "norm."),
    (r"^mlp\.layers\.", "pi."),
)


def in_the_references_words(named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a network by the reference's names; the pair of values one by one."""
    found = {}
    for name, array in named.items():
        layer = re.match(r"^(critic\.)?pair\.layers\.(\d)\.(weight|bias)$", name)
        if layer:
            for j in range(2):
                found[f"q{j}.{layer[2]}.{layer[3]}"] = array[j].T if layer[3] == "weight" else array[j, 0]
            continue
        known = name
        for pattern, words in RENAMED:
            known = re.sub(pattern, words, known)
        found[known] = array
    return found


def arrays(agent: DrQv2Agent, part: str) -> dict[str, np.ndarray]:
    """The tensors of a part as float64 copies, by the reference's names."""
    return in_the_references_words(part_arrays(agent, part))


@dataclass(frozen=True)
class Observed:
    """One update of an agent, and the reference's of the same."""

    metrics: dict[str, float]
    y: np.ndarray
    window: Any
    sigma: float
    expected: reference.Found
    before: dict[str, dict[str, np.ndarray]]


def observed_update(
    agent: DrQv2Agent, watched: Watched, settings: reference.Settings | None = None
) -> Observed:
    before = {part: arrays(agent, part) for part in NETWORKS}
    config = agent.config
    steps = config.random_steps + config.steps_per_update * agent.updates
    sigma = reference.noise_scale(config.noise_start, config.noise_end, config.noise_steps, steps)
    agent.metrics()
    agent.update(watched)
    results = agent._update._accelerator.results
    noise = results["arrange_noise"]
    chance = reference.Chance(
        noise.now.numpy(),
        noise.later.numpy(),
        noise.target_action.double().numpy(),
        noise.policy_action.double().numpy(),
    )
    (drawn,) = watched.windows
    window = windows(watched.replay, drawn)
    expected = reference.update(
        *before.values(), window, chance, sigma, settings or reference.Settings(n_step=config.n_step)
    )
    y = results["bootstrapped_target"].numpy()
    return Observed(agent.metrics(), y, window, sigma, expected, before)
