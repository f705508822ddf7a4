"""Dense layers, initial weights, and perceptrons of the MR.Q kind: LayerNorm without learned scale and shift.

Dense layers leave autocast: they compute in float32, on a GPU with products in TF32 unless that is forbidden.
Rounded to bf16 they made more than half of the error of gradients while learning began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        """The same on a GPU with zeros beside inputs and outputs that fill them up to a fast width."""
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
    parametrisation: that makes a class of its own for each layer, and compiled code is then compiled again
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

    The activation maps zero to zero, so that zeros beside a layer's outputs stay zeros.
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
