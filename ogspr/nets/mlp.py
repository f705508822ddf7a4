"""Multilayer perceptrons of the MR.Q kind: LayerNorm without scale and shift, Xavier, zero biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]

# Rows of 16 bytes: matrix products of other widths in bf16 run on slow kernels.
_WIDTH_MULTIPLE = 8
_NORM_EPSILON = 1e-5


def initialise(weight: Tensor, bias: Tensor) -> None:
    """Xavier-uniform with the gain of ReLU, and zero."""
    nn.init.xavier_uniform_(weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(bias)


def missing_width(width: int, like: Tensor) -> int:
    """How many zeros fill `width` up to a fast one on the device of `like`."""
    return -width % _WIDTH_MULTIPLE if like.is_cuda else 0


def normalised(x: Tensor, width: int) -> Tensor:
    """LayerNorm over the first `width` of the last dimension, without learned scale and shift.

    What lies beyond them is zero and stays zero.
    """
    if x.shape[-1] == width:
        return F.layer_norm(x, (width,))
    x = x.float()
    real = torch.arange(x.shape[-1], device=x.device) < width
    centred = torch.where(real, x - x.sum(-1, keepdim=True) / width, 0.0)
    variance = centred.square().sum(-1, keepdim=True) / width
    return centred * torch.rsqrt(variance + _NORM_EPSILON)


class Linear(nn.Linear):
    """A linear layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        initialise(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.widened(x)[..., : self.out_features]

    def widened(self, x: Tensor) -> Tensor:
        """The same on a GPU with zeros beside inputs and outputs that fill them up to a fast width."""
        more_in, more_out = missing_width(self.in_features, x), missing_width(self.out_features, x)
        x = F.pad(x, (0, self.in_features + more_in - x.shape[-1]))
        weight, bias = F.pad(self.weight, (0, more_in, 0, more_out)), F.pad(self.bias, (0, more_out))
        return F.linear(x, weight, bias)


class MLP(nn.Module):
    """Linear layers of the given sizes; LayerNorm and the activation after all but the last.

    The activation maps zero to zero, so that zeros beside a layer's outputs stay zeros.
    """

    def __init__(self, sizes: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        for layer in cast(Sequence[Linear], self.layers[:-1]):
            x = self.activation(normalised(layer.widened(x), layer.out_features))
        out: Tensor = self.layers[-1](x)
        return out


class ParallelLinear(nn.Module):
    """`members` linear layers of one size, as one batched product: (members, B, in) -> (members, B, out)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs))
        for weight, bias in zip(self.weight.detach(), self.bias.detach(), strict=True):
            initialise(weight.T, bias)  # a linear layer's weight is (out, in)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.weight.shape[2]
        more_out = missing_width(outputs, x)
        if not more_out:
            return torch.baddbmm(self.bias, x, self.weight)
        weight, bias = F.pad(self.weight, (0, more_out)), F.pad(self.bias, (0, more_out))
        return torch.baddbmm(bias, x, weight)[..., :outputs]


class ParallelMLP(nn.Module):
    """`members` MLPs that read the same input: (B, in) -> (members, B, out)."""

    def __init__(self, members: int, sizes: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.members = members
        self.layers = nn.ModuleList(ParallelLinear(members, a, b) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(self.members, *x.shape)
        for layer in self.layers[:-1]:
            x = layer(x)
            x = self.activation(normalised(x, x.shape[-1]))
        out: Tensor = self.layers[-1](x)
        return out
