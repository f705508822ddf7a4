"""States of agents: copied, compared, and sent through a file."""

import io

import numpy as np
import torch

from tests.agents.scene import LATE, images_of


def same(one, other):
    """To the bit; NaN is as good as any number."""
    return np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point())


def snapshot(agent, *prefixes):
    """Copies of the saved tensors under some prefixes, or of all."""
    tensors = agent.state_dict()["tensors"]
    return {name: tensors[name].clone() for name in (under(tensors, *prefixes) if prefixes else tensors)}


def under(names, *prefixes):
    return {name for name in names if name.startswith(tuple(f"{prefix}." for prefix in prefixes))}


def differing(before, after):
    """Names whose tensors are not the same to the bit."""
    assert before.keys() == after.keys()
    return {name for name in before if not same(before[name], after[name])}


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def played(agent, spec, updates, replay, late=LATE):
    """The actions after some updates, explored at the start of training and at agent step `late`."""
    actions = []
    for image in images_of(spec, updates, seed=3):
        agent.update(replay, late)
        actions += [agent.act_async(image, first=False, agent_steps=steps)() for steps in (0, late)]
    return np.array(actions)
