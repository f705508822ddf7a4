"""States as trees of JSON values and tensors: in files, as copies, and of the process's random generators."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ogspr.agents.protocol import State
from ogspr.records.tree import save_tree

_KIND = "ogspr-agent-1"


def save_state(path: Path, state: State) -> None:
    """An agent's state: the file is complete or not there."""
    save_tree(path, as_arrays(state), _KIND)


def as_arrays(state: State) -> dict[str, Any]:
    """The same tree with arrays in place of tensors, as files hold it."""
    arrays: dict[str, Any] = _mapped(state, torch.Tensor, lambda tensor: tensor.detach().cpu().numpy())
    return arrays


def as_tensors(tree: dict[str, Any]) -> State:
    state: State = _mapped(tree, np.ndarray, torch.from_numpy)
    return state


def copy_to_host(state: State) -> State:
    """The same state, of which nothing changes any more. Waits for the device."""
    copied: State = _mapped(state, torch.Tensor, lambda tensor: tensor.detach().cpu().clone())
    return copied


def _mapped(value: Any, kind: type, change: Any) -> Any:
    """A copy of a tree of dicts in which everything of a kind is changed."""
    if isinstance(value, dict):
        return {name: _mapped(item, kind, change) for name, item in value.items()}
    return change(value) if isinstance(value, kind) else value


def seed_generators(seed: int) -> None:
    """The generators of the process. The package draws from none of them; environments of users may."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def generator_states() -> dict[str, Any]:
    """JSON values and arrays."""
    version, numbers, gauss = random.getstate()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state().numpy(),
        "cuda": [state.numpy() for state in on_gpus],
    }


def set_generator_states(states: dict[str, Any]) -> None:
    python = states["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    np.random.set_state(states["numpy"])
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.from_numpy(state) for state in states["cuda"]])
