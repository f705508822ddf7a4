"""The modules that auxiliary tasks and adapters add to the networks."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from ogspr.nets.mlp import MLP, Linear
from ogspr.nets.weights import orthogonal
from ogspr.ops.two_hot import symexp_bins


class HeadSizes(NamedTuple):
    """The sizes a head may depend on."""

    representation: int  # Z
    latent: int  # D
    hidden: int
    decoder_inputs: int
    decoder_channels: tuple[int, int, int]
    frame_shape: tuple[int, int, int]


class TwoHotHead(nn.Module):
    """Two layers to logits over bins of returns."""

    bins: Tensor

    def __init__(self, inputs: int, hidden: int, bins: int, limit: float) -> None:
        super().__init__()
        self.logits = MLP((inputs, hidden, bins), nn.functional.elu, orthogonal)
        self.register_buffer("bins", symexp_bins(bins, limit), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.logits(z)
        return logits


class Borrowed(nn.Module):
    """Another module's function without owning its parameters, so that they are counted and saved once."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # in a tuple: a plain attribute would register it

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._owner[0](x)
        return out


def adapter(exists: bool, inputs: int, outputs: int) -> nn.Module:
    """One linear layer, or nothing."""
    if exists:
        return Linear(inputs, outputs, orthogonal)
    if inputs != outputs:
        raise ValueError(f"without an adapter the sizes must agree, got {inputs} and {outputs}")
    return nn.Identity()
