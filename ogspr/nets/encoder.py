"""The convolutional encoder: a stack of frames to a feature vector."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.errors import UserError
from ogspr.nets.mlp import Initialise, Linear, normalised, xavier
from ogspr.ops import first_layer

_LATER_STRIDES = (2, 2, 1)
SMALLEST_IMAGE = 31  # below this nothing is left after the four convolutions


class ConvEncoder(nn.Module):
    """Four 3x3 convolutions (strides 2, 2, 2, 1), each with ELU, then linear, LayerNorm and ELU."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        channels: int,
        features: int,
        initialise: Initialise = xavier,
    ) -> None:
        super().__init__()
        image_channels, height, width = image_shape
        if min(height, width) < SMALLEST_IMAGE:
            raise UserError(
                f"images of {height}x{width} pixels are too small for the encoder; "
                f"it needs at least {SMALLEST_IMAGE}x{SMALLEST_IMAGE}."
            )
        self.first = _convolution(image_channels, channels, first_layer.STRIDE, initialise)
        self.later = nn.ModuleList(
            _convolution(channels, channels, stride, initialise) for stride in _LATER_STRIDES
        )
        self.head = Linear(channels * _remaining(height) * _remaining(width), features, initialise)

    def forward(self, images: Tensor) -> Tensor:
        """Pictures: (N, S * C, H, W) -> (N, D)."""
        return self._features(
            first_layer.first_layer(images, self.first.weight, cast(Tensor, self.first.bias))
        )

    def of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """Shifted frame stacks in replay: (slots, C, H, W), (N, S), (N, 2) -> (N, D)."""
        first = first_layer.first_layer_of_stacks(
            frames, slots, offsets, pad, pixel_range, self.first.weight, cast(Tensor, self.first.bias)
        )
        return self._features(first)

    def _features(self, x: Tensor) -> Tensor:
        for convolution in self.later:
            x = F.elu(convolution(x))
        features = self.head(x.flatten(1))
        return F.elu(normalised(features, features.shape[-1]))


def _convolution(inputs: int, outputs: int, stride: int, initialise: Initialise) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, first_layer.KERNEL, stride)
    initialise(layer.weight, cast(Tensor, layer.bias))
    return layer


def _remaining(length: int) -> int:
    length = first_layer.output_size(length)
    for stride in _LATER_STRIDES:
        length = (length - first_layer.KERNEL) // stride + 1
    return length
