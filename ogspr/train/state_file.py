"""Tensors among JSON values, as files and as copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ogspr.agents.protocol import State
from ogspr.records.tree import load_tree, save_tree

_KIND = "ogspr-agent-1"


def save_state(path: Path, state: State) -> None:
    """An agent's state: the file is complete or not there."""
    save_tree(path, as_arrays(state), _KIND)


def load_state(path: Path) -> State:
    """What was saved, tensors on the CPU; a UserError where the file is no agent's state."""
    return as_tensors(load_tree(path, _KIND))


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
