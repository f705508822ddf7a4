"""Small agents of DrQ-v2, and a look at an update beside the reference's account of it."""

import re
from dataclasses import dataclass

import numpy as np

from ogspr.agents.drqv2 import DrQv2Config, Sizes
from tests.agents.drqv2 import reference
from tests.agents.reference import Windows
from tests.agents.scene import Scene, as_windows, make_spec
from tests.agents.scene import arrays as part_arrays

SMALL = Sizes(encoder_channels=6, features=10, hidden=24)
NETWORKS = ("value_network", "policy", "target_critic")
SPEC = make_spec("continuous")
AGENT_STEPS = 35  # 20 random ones, seven updates two steps apart, and the step that the next one follows


def small_config(**changes):
    small = {"sizes": SMALL, "batch_size": 16, "random_steps": 20, "noise_steps": 100}
    return DrQv2Config(**small | changes)


def scene(*, side=36, reward=3.0, **changes):
    """As it is when the next update is about to be made: the noise of actions is that of its agent step."""
    subject = Scene(small_config(**changes), side=side, reward=reward, updates=7)
    assert list(subject.agent.method.schedule(7, AGENT_STEPS, subject.replay)) == ["all"]
    return subject


# --- from the agent's world to the reference's ------------------------------------------------------

RENAMED = (
    (r"^encoder\.first\.", "conv0."),
    (r"^encoder\.later\.(\d)\.", lambda found: f"conv{int(found[1]) + 1}."),
    (r"^(critic\.)?trunk\.linear\.", "trunk."),
    (r"^(critic\.)?trunk\.norm\.", "norm."),
    (r"^mlp\.layers\.", "pi."),
)


def in_the_references_words(named):
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


def arrays(agent, part):
    """The tensors of a part as float64 copies, by the reference's names."""
    return in_the_references_words(part_arrays(agent, part))


@dataclass(frozen=True)
class Expected:
    """What an update has, and what the reference makes of it."""

    networks: dict
    window: Windows
    chance: reference.Chance
    sigma: float
    found: reference.Found


def compared(scene, settings=None, change=lambda noise: noise):
    """A look at the next update, and what the reference expects of it."""
    config = scene.agent.config
    settings = settings or reference.Settings(n_step=config.n_step)
    networks = {part: arrays(scene.agent, part) for part in NETWORKS}
    sigma = reference.noise_scale(config.noise_start, config.noise_end, config.noise_steps, AGENT_STEPS - 1)
    look = scene.look(change=change)
    now, later = (
        np.floor(uniforms.T.numpy() * (2 * settings.pad + 1)).astype(int) for uniforms in look.noise[:2]
    )
    chance = reference.Chance(now, later, *(normals.double().numpy() for normals in look.noise[2:]))
    window = as_windows(scene.replay, look.windows["value"])
    found = reference.update(*networks.values(), window, chance, sigma, settings)
    return look, Expected(networks, window, chance, sigma, found)
