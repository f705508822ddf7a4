"""What methods do to whole networks: copy their numbers, share them without gradients, count them."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def copy_parameters(into: nn.Module, module: nn.Module) -> None:
    """In place, between two modules of one kind."""
    with torch.no_grad():
        torch._foreach_copy_(list(into.parameters()), list(module.parameters()))


def frozen_view(module: M) -> M:
    """The same module over the same numbers, but nothing that is computed with it gives them a gradient."""
    stand_ins = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters()}
    return copy.deepcopy(module, stand_ins)


def parameter_count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
