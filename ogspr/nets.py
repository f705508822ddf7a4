"""Dense layers, initial weights, and perceptrons of the MR.Q kind: LayerNorm without learned scale and shift.

Dense layers leave autocast: they compute in float32, on a GPU with products in TF32 unless that is forbidden.
Rounded to bf16 they made more than half of the error of gradients at the start of learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.errors import UserError
from ogspr.ops import images as image_ops

# --- initial weights; biases begin at zero everywhere --------------------------------------------------


Initialise = Callable[[Tensor, Tensor], None]
"""Fills weight and bias of one layer, in place."""


def xavier(weight: Tensor, bias: Tensor) -> None:
    """Xavier-uniform with the gain of ReLU."""
    nn.init.xavier_uniform_(weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(bias)


def orthogonal(weight: Tensor, bias: Tensor) -> None:
    """Rows or columns, whichever are fewer, become orthogonal: of length 1, in convolutions of sqrt 2."""
    nn.init.orthogonal_(weight, 1.0 if weight.ndim == 2 else math.sqrt(2.0))
    nn.init.zeros_(bias)


# --- layers --------------------------------------------------------------------------------------------


Activation = Callable[[Tensor], Tensor]

# Matrix products and convolutions of other widths run on slow kernels.
_WIDTH_MULTIPLE = 8
_NORM_EPSILON = 1e-5
_FIRST_ITERATIONS = 15


def missing_width(width: int, like: Tensor) -> int:
    """How many zeros fill `width` up to a fast one on the device of `like`."""
    return -width % _WIDTH_MULTIPLE if like.is_cuda else 0


def normalised(x: Tensor, width: int) -> Tensor:
    """LayerNorm over the first `width` of the last dimension, without learned scale and shift.

    What lies beyond them is zero and stays zero.
    """
    if x.shape[-1] == width:
        return F.layer_norm(x, (width,))
    real = torch.arange(x.shape[-1], device=x.device) < width
    centred = torch.where(real, x - x.sum(-1, keepdim=True) / width, 0.0)
    variance = centred.square().sum(-1, keepdim=True) / width
    return centred * torch.rsqrt(variance + _NORM_EPSILON)


def as_float32(x: Tensor) -> Tensor:
    """What a convolution under autocast has made, for dense layers."""
    return x.float() if x.dtype == torch.bfloat16 else x


class Linear(nn.Linear):
    """A linear layer that can leave its output as wide as a GPU likes it."""

    def __init__(self, inputs: int, outputs: int, initialise: Initialise = xavier) -> None:
        super().__init__(inputs, outputs)
        initialise(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.padded_forward(x)[..., : self.out_features]

    def padded_forward(self, x: Tensor) -> Tensor:
        """The same on a GPU with zeros next to inputs and outputs that fill them up to a fast width."""
        more_in, more_out = missing_width(self.in_features, x), missing_width(self.out_features, x)
        with torch.autocast(x.device.type, enabled=False):
            x = as_float32(x)
            if not more_in and not more_out:
                return F.linear(x, self.effective_weight(), self.bias)
            x = F.pad(x, (0, self.in_features + more_in - x.shape[-1]))
            weight = F.pad(self.effective_weight(), (0, more_in, 0, more_out))
            return F.linear(x, weight, F.pad(self.bias, (0, more_out)))

    def effective_weight(self) -> Tensor:
        """What inputs are multiplied with."""
        return self.weight


class SpectralLinear(Linear):
    """A linear layer whose weight is divided by its largest singular value (Miyato et al., 2018).

    The value is followed by one step of power iteration a forward pass in training. Not torch's
    parametrisation: that makes a separate class for each layer, and compiled code is then compiled again
    for each learner of a process.
    """

    left: Tensor
    right: Tensor

    def __init__(self, inputs: int, outputs: int, initialise: Initialise = xavier) -> None:
        super().__init__(inputs, outputs, initialise)
        self.register_buffer("left", F.normalize(torch.randn(outputs), dim=0))
        self.register_buffer("right", F.normalize(torch.randn(inputs), dim=0))
        with torch.no_grad():
            for _ in range(_FIRST_ITERATIONS):
                self._iterate()

    def effective_weight(self) -> Tensor:
        if self.training:
            with torch.no_grad():
                self._iterate()
        # As sums, because matrix products may be rounded to TF32.
        left, right = self.left.clone(), self.right.clone()
        largest = (left[:, None] * self.weight * right).sum()
        return self.weight / largest

    def _iterate(self) -> None:
        self.left.copy_(F.normalize((self.weight * self.right).sum(1), dim=0))
        self.right.copy_(F.normalize((self.weight * self.left[:, None]).sum(0), dim=0))


class MLP(nn.Module):
    """Linear layers of the given sizes; LayerNorm and the activation after all but the last.

    The activation maps zero to zero, so that zeros next to a layer's outputs stay zeros.
    """

    def __init__(self, sizes: Sequence[int], activation: Activation, initialise: Initialise = xavier) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(a, b, initialise) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        for layer in cast(Sequence[Linear], self.layers[:-1]):
            x = self.activation(normalised(layer.padded_forward(x), layer.out_features))
        outputs: Tensor = self.layers[-1](x)
        return outputs


class ParallelLinear(nn.Module):
    """`members` linear layers of one size, as one batched product: (members, B, in) -> (members, B, out)."""

    def __init__(self, members: int, inputs: int, outputs: int, initialise: Initialise = xavier) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs))
        for weight, bias in zip(self.weight.detach(), self.bias.detach(), strict=True):
            initialise(weight.T, bias)  # a linear layer's weight is (out, in)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.weight.shape[2]
        more_out = missing_width(outputs, x)
        with torch.autocast(x.device.type, enabled=False):
            x = as_float32(x)
            if not more_out:
                return torch.baddbmm(self.bias, x, self.weight)
            weight, bias = F.pad(self.weight, (0, more_out)), F.pad(self.bias, (0, more_out))
            return torch.baddbmm(bias, x, weight)[..., :outputs]


class ParallelMLP(nn.Module):
    """`members` MLPs that read the same input: (B, in) -> (members, B, out)."""

    def __init__(
        self, members: int, sizes: Sequence[int], activation: Activation, initialise: Initialise = xavier
    ) -> None:
        super().__init__()
        self.members = members
        self.layers = nn.ModuleList(ParallelLinear(members, a, b, initialise) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(self.members, *x.shape)
        for layer in self.layers[:-1]:
            x = layer(x)
            x = self.activation(normalised(x, x.shape[-1]))
        outputs: Tensor = self.layers[-1](x)
        return outputs


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
        """Images: (N, S * C, H, W) -> (N, D)."""
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
    the first layer is as large as its image: 40 pixels come about as 1, 2, 7, 18, 40.
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
    """A transposed convolution of an image of one pixel, (B, D) -> (B, C, H, W): a linear layer."""

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
    pixels, and interleaving them gives the image: the same sums, by kernels that GPUs are good at.
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
    """The side of the image after each layer, backwards from the goal: n pixels become 2 n + 4."""
    sides = [length]
    for _ in range(_DOUBLINGS):
        sides.insert(0, max(1, -(-(sides[0] - (_KERNEL - 2)) // 2)))
    return sides
