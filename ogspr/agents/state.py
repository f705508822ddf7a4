"""What an agent is made of beside its networks' shapes: saved and loaded the same way for all methods."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ogspr.agents.optimisation import copy_state
from ogspr.agents.protocol import State

Parts = Mapping[str, Mapping[str, Tensor]]  # tensors by part and name


class Chance:
    """An agent's random numbers: one generator a role, so that acting more often does not change learning.

    Args:
        seed: Decides all of them.
        device: Where updates draw theirs.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        update_seed, act_seed = np.random.SeedSequence(seed).spawn(2)
        self.learning = torch.Generator(device)
        self.learning.manual_seed(int(update_seed.generate_state(1, np.uint64)[0] >> 1))
        self.acting = np.random.default_rng(act_seed)


def agent_state(updates: int, chance: Chance, parts: Parts) -> State:
    """Everything that decides what comes next, but for replay: tensors and JSON values; not copies."""
    return {
        "updates": updates,
        "act_rng": chance.acting.bit_generator.state,
        "generator": chance.learning.get_state(),
        "tensors": {
            f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()
        },
    }


def load_agent_state(state: State, chance: Chance, parts: Parts) -> int:
    """In place: what was captured before goes on with the loaded numbers. The number of updates.

    ValueError where the state is of another agent; nothing is changed then.
    """
    ours = agent_state(0, chance, parts)
    if state.keys() != ours.keys():
        raise ValueError(f"the saved state does not fit: it has {sorted(state)}, expected {sorted(ours)}")
    acting, learning = np.random.default_rng(), torch.Generator(chance.learning.device)
    try:  # on stand-ins: a state that cannot be used is found out before anything is changed
        acting.bit_generator.state = state["act_rng"]
        learning.set_state(state["generator"].cpu())
        updates = int(state["updates"])
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"the saved state does not fit: {error}") from None
    copy_state(ours["tensors"], state["tensors"])
    chance.acting.bit_generator.state = acting.bit_generator.state
    chance.learning.set_state(learning.get_state())
    return updates
