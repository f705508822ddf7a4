"""The decoder: a representation to one frame."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.nets.mlp import SpectralLinear, initialise, missing_width

_PADDINGS = (1, 0, 1)  # of the layers that double; 84 <- 42 <- 20 <- 10
_TRIPLE = 3  # the first layer's kernel and stride: 10 <- 3


class FrameDecoder(nn.Module):
    """A linear layer with spectral normalisation and four transposed convolutions: (B, D) -> (B, C, H, W).

    One that triples the side and three that double it, ReLU between all. 84 pixels come about as 3, 10,
    20, 42, 84; on the way to other sides rows and columns are added or cut off.
    """

    def __init__(self, features: int, channels: int, frame_shape: tuple[int, int, int]) -> None:
        super().__init__()
        frame_channels, height, width = frame_shape
        sides = [_sides(height), _sides(width)]
        first = tuple(side[0] // _TRIPLE for side in sides)
        self.start = (channels, *first)
        self.expand = SpectralLinear(features, channels * first[0] * first[1])
        widths = (channels, channels // 2, channels // 4, channels // 8, frame_channels)
        self.triple = nn.ConvTranspose2d(
            widths[0],
            widths[1],
            _TRIPLE,
            _TRIPLE,
            output_padding=(sides[0][0] % _TRIPLE, sides[1][0] % _TRIPLE),
        )
        initialise(self.triple.weight, cast(Tensor, self.triple.bias))
        self.doublings = nn.ModuleList(
            Doubling(widths[i + 1], widths[i + 2], padding, (sides[0][i + 1], sides[1][i + 1]))
            for i, padding in enumerate(_PADDINGS)
        )

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.triple(F.relu(self.expand(z).unflatten(1, self.start)))
        for doubling in self.doublings:
            x = doubling(F.relu(x))
        return x


class Doubling(nn.ConvTranspose2d):
    """A transposed 4x4 convolution with stride 2, computed as a 2x2 convolution to four times the channels.

    Each output pixel is reached by 2x2 inputs through every second weight of the kernel; which ones depends
    on whether its row and column are even or odd. So four ordinary convolutions give the four kinds of
    pixels, and interleaving them gives the picture: the same sums, by kernels that GPUs are good at.
    """

    def __init__(self, inputs: int, outputs: int, padding: int, size: tuple[int, int]) -> None:
        super().__init__(inputs, outputs, kernel_size=4, stride=2)
        initialise(self.weight, cast(Tensor, self.bias))
        self._margin = padding
        self._size = size

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: ARG002
        channels = 4 * self.out_channels
        more = missing_width(channels, x)
        weight = F.pad(self._by_parity(), (0, 0, 0, 0, 0, 0, 0, more))
        bias = F.pad(cast(Tensor, self.bias).repeat_interleave(4), (0, more))
        kinds = F.conv2d(x, weight, bias, padding=1)[:, :channels]
        picture = F.pixel_shuffle(kinds, 2)
        bottom, right = self._margin + self._size[0], self._margin + self._size[1]
        return picture[:, :, self._margin : bottom, self._margin : right]

    def _by_parity(self) -> Tensor:
        """(in, out, 4, 4) -> (out * 4, in, 2, 2): kernel row 2 q + a serves parity a from tap 1 - q."""
        kernel = self.weight.view(self.in_channels, self.out_channels, 2, 2, 2, 2)  # in, out, q, a, q', a'
        taps = kernel.permute(1, 3, 5, 0, 2, 4).flip(4, 5)  # out, a, a', in, tap, tap'
        return taps.reshape(4 * self.out_channels, self.in_channels, 2, 2)


def _sides(length: int) -> list[int]:
    """The side of the picture before each doubling and after the last, backwards from the goal."""
    sides = [length]
    for padding in reversed(_PADDINGS):
        sides.insert(0, (sides[0] - 1 + padding) // 2)
    return sides
