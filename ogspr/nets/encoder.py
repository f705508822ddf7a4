"""The convolutional encoder: a stack of frames to a feature vector."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.errors import UserError
from ogspr.nets.mlp import initialise, linear, normalised

_KERNEL = 3
_STRIDES = (2, 2, 2, 1)
SMALLEST_IMAGE = 31  # below this nothing is left after the four convolutions
# Tensor cores want channels in multiples of 8; with 9, the first convolution would run without them.
_CHANNEL_MULTIPLE = 16


class ConvEncoder(nn.Module):
    """Four 3x3 convolutions (strides 2, 2, 2, 1), each with ELU, then linear, LayerNorm and ELU.

    (N, C, H, W) -> (N, D)
    """

    def __init__(self, image_shape: tuple[int, int, int], channels: int, features: int) -> None:
        super().__init__()
        image_channels, height, width = image_shape
        if min(height, width) < SMALLEST_IMAGE:
            raise UserError(
                f"images of {height}x{width} pixels are too small for the encoder; "
                f"it needs at least {SMALLEST_IMAGE}x{SMALLEST_IMAGE}."
            )
        inputs = (image_channels, channels, channels, channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(size, channels, _KERNEL, stride) for size, stride in zip(inputs, _STRIDES, strict=True)
        )
        for convolution in self.convolutions:
            initialise(convolution.weight, convolution.bias)
        self.head = linear(channels * _remaining(height) * _remaining(width), features)

    def forward(self, images: Tensor) -> Tensor:
        x = F.elu(self._first(images))
        for convolution in self.convolutions[1:]:
            x = F.elu(convolution(x))
        return F.elu(normalised(self.head(x.flatten(1))))

    def _first(self, images: Tensor) -> Tensor:
        """The first convolution, on a GPU with channels of zeros added up to a multiple."""
        first = self.convolutions[0]
        missing = -images.shape[1] % _CHANNEL_MULTIPLE if images.is_cuda else 0
        widen = (0, 0, 0, 0, 0, missing)
        return F.conv2d(F.pad(images, widen), F.pad(first.weight, widen), first.bias, first.stride)


def _remaining(length: int) -> int:
    for stride in _STRIDES:
        length = (length - _KERNEL) // stride + 1
    return length
