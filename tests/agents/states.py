"""States of agents: copied, compared, moved, and sent through a file."""

import copy
import io
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from ogspr.agents.base import AgentBase
from ogspr.types import EnvSpec

Tensors = dict[str, torch.Tensor]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit; NaN is as good as any number."""
    return np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point())


def snapshot(agent: AgentBase, *prefixes: str) -> Tensors:
    """Copies of the saved tensors under some prefixes, or of all."""
    tensors = agent.state_dict()["tensors"]
    chosen = under(tensors, *prefixes) if prefixes else tensors
    return {name: tensors[name].clone() for name in chosen}


def under(names: Collection[str], *prefixes: str) -> set[str]:
    return {name for name in names if name.startswith(tuple(f"{prefix}." for prefix in prefixes))}


def differing(before: Tensors, after: Tensors) -> set[str]:
    """Names whose tensors are not the same to the bit."""
    assert before.keys() == after.keys()
    return {name for name in before if not same(before[name], after[name])}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def played(agent: Any, spec: EnvSpec, updates: int, replay: Any, late: int = 10**6) -> Any:
    """The actions after some updates, explored at the start of training and at agent step `late`."""
    rng = np.random.default_rng(3)
    actions = []
    for _ in range(updates):
        agent.update(replay)
        observation = rng.integers(0, 256, spec.observation_shape, dtype=np.uint8)
        actions += [agent.ask(observation, agent_steps=steps, explore=True)() for steps in (0, late)]
    return np.array(actions)


def move_all(agent: AgentBase, networks: Collection[str], updates: int, seed: int, size: float) -> None:
    """Moves every number of the networks, so that targets differ from what learns and no bias is zero.

    The agent believes that it has made so many updates.
    """
    rng = np.random.default_rng(seed)
    state = copy.deepcopy(agent.state_dict())
    for name, tensor in state["tensors"].items():
        if name.split(".")[0] in networks:
            tensor.add_(torch.from_numpy(rng.standard_normal(tensor.shape)), alpha=size)
    state["updates"] = updates
    agent.load_state_dict(state)
