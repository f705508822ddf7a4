"""Multilayer perceptrons of the MR.Q kind: LayerNorm without scale and shift, Xavier, zero biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


def initialise(weight: Tensor, bias: Tensor) -> None:
    """Xavier-uniform with the gain of ReLU, and zero."""
    nn.init.xavier_uniform_(weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(bias)


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    initialise(layer.weight, layer.bias)
    return layer


def normalised(x: Tensor) -> Tensor:
    """LayerNorm over the last dimension without learned scale and shift."""
    return F.layer_norm(x, x.shape[-1:])


class MLP(nn.Module):
    """Linear layers of the given sizes; LayerNorm and the activation after all but the last."""

    def __init__(self, sizes: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.layers = nn.ModuleList(linear(a, b) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.activation(normalised(layer(x)))
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
        return torch.baddbmm(self.bias, x, self.weight)


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
            x = self.activation(normalised(layer(x)))
        out: Tensor = self.layers[-1](x)
        return out
