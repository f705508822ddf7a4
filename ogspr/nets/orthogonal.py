"""Networks of the DrQ kind: ReLU and no normalisation between layers, orthogonal weights, zero biases.

Layers are made as others are and become orthogonal then: so the weights of a seed stay those of the runs in
results/.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.errors import UserError
from ogspr.nets.mlp import Linear, ParallelLinear
from ogspr.nets.weights import orthogonal
from ogspr.ops import first_layer

_LATER_LAYERS = 3  # of stride 1
SMALLEST_IMAGE = 15  # below this nothing is left after the four convolutions


class FlatEncoder(nn.Module):
    """Four 3x3 convolutions (strides 2, 1, 1, 1), each with ReLU; their last maps as one long vector."""

    def __init__(self, image_shape: tuple[int, int, int], channels: int) -> None:
        super().__init__()
        image_channels, height, width = image_shape
        if min(height, width) < SMALLEST_IMAGE:
            raise UserError(
                f"images of {height}x{width} pixels are too small for the encoder; "
                f"it needs at least {SMALLEST_IMAGE}x{SMALLEST_IMAGE}."
            )
        self.first = _convolution(image_channels, channels, first_layer.STRIDE)
        self.later = nn.ModuleList(_convolution(channels, channels, 1) for _ in range(_LATER_LAYERS))
        self.size = channels * _remaining(height) * _remaining(width)

    def forward(self, images: Tensor) -> Tensor:
        """Pictures: (N, S * C, H, W) -> (N, size)."""
        return self._features(
            first_layer.first_layer(images, self.first.weight, cast(Tensor, self.first.bias))
        )

    def of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """Shifted frame stacks in replay: (slots, C, H, W), (N, S), (N, 2) -> (N, size)."""
        first = first_layer.first_layer_of_stacks(
            frames, slots, offsets, pad, pixel_range, self.first.weight, cast(Tensor, self.first.bias)
        )
        return self._features(first)

    def _features(self, x: Tensor) -> Tensor:
        # The first layer comes with ELU, which has the sign of its argument: ReLU of it is ReLU.
        x = F.relu(x)
        for convolution in self.later:
            x = F.relu(convolution(x))
        return x.flatten(1)


class Trunk(nn.Module):
    """Linear, LayerNorm with learned scale and shift, tanh: (N, inputs) -> (N, features)."""

    def __init__(self, inputs: int, features: int) -> None:
        super().__init__()
        self.linear = Linear(inputs, features)
        orthogonal(self.linear.weight, self.linear.bias)
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.linear(x)))


class ReLUMLP(nn.Module):
    """Linear layers of the given sizes with ReLU between: (N, in) -> (N, out)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        for layer in cast(Sequence[Linear], self.layers):
            orthogonal(layer.weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return _through(self.layers, x)


class ParallelReLUMLP(nn.Module):
    """`members` such networks that read the same input: (N, in) -> (members, N, out)."""

    def __init__(self, members: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.members = members
        self.layers = nn.ModuleList(ParallelLinear(members, a, b) for a, b in pairwise(sizes))
        for layer in cast(Sequence[ParallelLinear], self.layers):
            for weight, bias in zip(layer.weight.detach(), layer.bias.detach(), strict=True):
                orthogonal(weight.T, bias)  # a linear layer's weight is (out, in)

    def forward(self, x: Tensor) -> Tensor:
        return _through(self.layers, x.expand(self.members, *x.shape))


def _through(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = F.relu(layer(x))
    outputs: Tensor = layers[-1](x)
    return outputs


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, first_layer.KERNEL, stride)
    orthogonal(layer.weight, cast(Tensor, layer.bias))
    return layer


def _remaining(length: int) -> int:
    return first_layer.output_size(length) - _LATER_LAYERS * (first_layer.KERNEL - 1)
