"""What methods do to whole networks: copy their parameters, share them without gradients, count them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def copy_parameters(into: nn.Module, module: nn.Module) -> None:
    """In place, between two modules of one kind."""
    with torch.no_grad():
        torch._foreach_copy_(list(into.parameters()), list(module.parameters()))


def frozen_view(module: M) -> M:
    """The same module over the same parameters, to which nothing computed with it gives a gradient."""
    stand_ins = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters()}
    return copy.deepcopy(module, stand_ins)


def parameter_count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def copy_state(into: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copies tensors by name, in place; names and shapes must be the same on both sides."""
    if into.keys() != state.keys():
        missing, foreign = sorted(into.keys() - state.keys()), sorted(state.keys() - into.keys())
        raise ValueError(f"the saved state does not fit: missing {missing}, not known {foreign}")
    for name, tensor in into.items():
        given = state[name]
        if (tensor.shape, tensor.dtype) != (given.shape, given.dtype):
            raise ValueError(
                f"the saved state does not fit: '{name}' is {tuple(given.shape)} {given.dtype}, "
                f"expected {tuple(tensor.shape)} {tensor.dtype}"
            )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(state[name])
