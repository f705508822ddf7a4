"""Convolutional encoder and decoder."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.errors import UserError
from ogspr.nets.mlp import Initialise, Linear, SpectralLinear, missing_width, normalised, orthogonal, xavier
from ogspr.ops import images as image_ops

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
        self.first = _convolution(image_channels, channels, image_ops.STRIDE, initialise)
        self.later = nn.ModuleList(
            _convolution(channels, channels, stride, initialise) for stride in _LATER_STRIDES
        )
        self.head = Linear(channels * _remaining(height) * _remaining(width), features, initialise)

    def forward(self, images: Tensor) -> Tensor:
        """Pictures: (N, S * C, H, W) -> (N, D)."""
        return self._features(image_ops.first_layer(images, self.first.weight, cast(Tensor, self.first.bias)))

    def of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """Shifted frame stacks in replay: (slots, C, H, W), (N, S), (N, 2) -> (N, D)."""
        first = image_ops.first_layer_of_stacks(
            frames, slots, offsets, pad, pixel_range, self.first.weight, cast(Tensor, self.first.bias)
        )
        return self._features(first)

    def _features(self, x: Tensor) -> Tensor:
        for convolution in self.later:
            x = F.elu(convolution(x))
        features = self.head(x.flatten(1))
        return F.elu(normalised(features, features.shape[-1]))


def _convolution(inputs: int, outputs: int, stride: int, initialise: Initialise) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, image_ops.KERNEL, stride)
    initialise(layer.weight, cast(Tensor, layer.bias))
    return layer


def _remaining(length: int) -> int:
    length = image_ops.output_size(length)
    for stride in _LATER_STRIDES:
        length = (length - image_ops.KERNEL) // stride + 1
    return length


_DOUBLINGS = 3
_KERNEL = 6  # of the layers that double


class FrameDecoder(nn.Module):
    """A linear layer with spectral normalisation and four transposed convolutions: (B, D) -> (B, C, H, W).

    No activation after the linear layer, ReLU between the convolutions. All have stride 2 and no padding, so
    84 pixels come about as 1, 7, 18, 40, 84. On the way to another side each layer begins with the smallest
    one that reaches the next, what is too much is cut off at the bottom and on the right, and the kernel of
    the first layer is as large as its picture: 40 pixels come about as 1, 2, 7, 18, 40.
    """

    def __init__(
        self, features: int, channels: int, widths: tuple[int, int, int], frame_shape: tuple[int, int, int]
    ) -> None:
        super().__init__()
        frame_channels, height, width = frame_shape
        sides = list(zip(_sides(height), _sides(width), strict=True))
        outputs = (*widths[1:], frame_channels)
        self.expand = SpectralLinear(features, channels, orthogonal)
        self.first = FromOnePixel(channels, widths[0], sides[0])
        self.doublings = nn.ModuleList(
            Doubling(a, b, size) for a, b, size in zip(widths, outputs, sides[1:], strict=True)
        )

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.first(self.expand(z))
        for doubling in self.doublings:
            x = doubling(F.relu(x))
        return x


class FromOnePixel(nn.ConvTranspose2d):
    """A transposed convolution of a picture of one pixel, (B, D) -> (B, C, H, W): a linear layer."""

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int]) -> None:
        super().__init__(inputs, outputs, kernel_size=size)
        orthogonal(self.weight, cast(Tensor, self.bias))

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: ARG002
        height, width = self.weight.shape[2:]
        # Channels last, which is what the convolutions behind it like.
        weight = self.weight.permute(0, 2, 3, 1).reshape(self.in_channels, -1)
        bias = cast(Tensor, self.bias).repeat(height * width)
        with torch.autocast(x.device.type, enabled=False):  # as all dense layers
            pixels = torch.addmm(bias, x, weight)
        return pixels.view(-1, height, width, self.out_channels).permute(0, 3, 1, 2)


class Doubling(nn.ConvTranspose2d):
    """A transposed 6x6 convolution with stride 2, computed as a 3x3 convolution to four times the channels.

    Each output pixel is reached by 3x3 inputs through every second weight of the kernel; which ones depends
    on whether its row and column are even or odd. So four ordinary convolutions give the four kinds of
    pixels, and interleaving them gives the picture: the same sums, by kernels that GPUs are good at.
    """

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int]) -> None:
        super().__init__(inputs, outputs, kernel_size=_KERNEL, stride=2)
        orthogonal(self.weight, cast(Tensor, self.bias))
        self._size = size

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: ARG002
        channels = 4 * self.out_channels
        more = missing_width(channels, x)
        weight = F.pad(self._by_parity(), (0, 0, 0, 0, 0, 0, 0, more))
        bias = F.pad(cast(Tensor, self.bias).repeat_interleave(4), (0, more))
        kinds = F.conv2d(x, weight, bias, padding=_KERNEL // 2 - 1)[:, :channels]
        height, width = self._size
        return F.pixel_shuffle(kinds, 2)[:, :, :height, :width]

    def _by_parity(self) -> Tensor:
        """(in, out, 6, 6) -> (out * 4, in, 3, 3): kernel row 2 q + a serves parity a from tap 2 - q."""
        taps = _KERNEL // 2
        kernel = self.weight.view(self.in_channels, self.out_channels, taps, 2, taps, 2)  # in, out, q, a, ...
        kernel = kernel.permute(1, 3, 5, 0, 2, 4).flip(4, 5)  # out, a, a', in, tap, tap'
        return kernel.reshape(4 * self.out_channels, self.in_channels, taps, taps)


def _sides(length: int) -> list[int]:
    """The side of the picture after each layer, backwards from the goal: n pixels become 2 n + 4."""
    sides = [length]
    for _ in range(_DOUBLINGS):
        sides.insert(0, max(1, -(-(sides[0] - (_KERNEL - 2)) // 2)))
    return sides
