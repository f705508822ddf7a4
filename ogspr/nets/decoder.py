"""The decoder: a representation to one frame."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from ogspr.nets.mlp import initialise, linear


@dataclass(frozen=True)
class _Layer:
    """A transposed convolution: length -> stride * length + growth (+ what is missing to the next size)."""

    kernel: int
    stride: int
    padding: int

    @property
    def growth(self) -> int:
        return self.kernel - self.stride - 2 * self.padding


# From 3x3 to 84x84 over 10, 20 and 42.
_LAYERS = (_Layer(3, 3, 0), _Layer(4, 2, 1), _Layer(4, 2, 0), _Layer(4, 2, 1))


class FrameDecoder(nn.Module):
    """A linear layer with spectral normalisation and four transposed convolutions: (B, D) -> (B, C, H, W)."""

    def __init__(self, features: int, channels: int, frame_shape: tuple[int, int, int]) -> None:
        super().__init__()
        frame_channels, height, width = frame_shape
        rows, columns = _sizes(height), _sizes(width)
        self.start = (channels, rows[0], columns[0])
        self.expand = spectral_norm(linear(features, channels * rows[0] * columns[0]))
        widths = (channels, channels // 2, channels // 4, channels // 8, frame_channels)
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(
                widths[i],
                widths[i + 1],
                layer.kernel,
                layer.stride,
                layer.padding,
                output_padding=(_left_over(layer, rows, i), _left_over(layer, columns, i)),
            )
            for i, layer in enumerate(_LAYERS)
        )
        for convolution in self.convolutions:
            initialise(convolution.weight, convolution.bias)

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.expand(z).unflatten(1, self.start)
        for convolution in self.convolutions:
            x = convolution(F.relu(x))
        return x


def _sizes(length: int) -> list[int]:
    """The side of the picture before each layer and after the last, backwards from the goal."""
    sizes = [length]
    for layer in reversed(_LAYERS):
        sizes.insert(0, (sizes[0] - layer.growth) // layer.stride)
    return sizes


def _left_over(layer: _Layer, sizes: list[int], index: int) -> int:
    return sizes[index + 1] - (sizes[index] * layer.stride + layer.growth)
