"""The adapters around the latent state: which of the two exist, and whether they are one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ogspr.nets.mlp import Linear


class Borrowed(nn.Module):
    """Another module's function without owning its parameters, so that they are counted and saved once."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # in a tuple: a plain attribute would register it

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._owner[0](x)
        return out


@dataclass(frozen=True)
class Adapters:
    """u1 maps encoder features to latent states, u2 representations back to latent states."""

    first_exists: bool
    """Whether there is an Adapter 1; without it, the encoder's features are the latent state."""
    second_exists: bool
    """Whether there is an Adapter 2 in self-prediction."""
    shared: bool = False
    """Whether both are one module."""

    def first(self, features: int, latent: int) -> nn.Module:
        """u1: one linear layer, or nothing."""
        return _adapter(self.first_exists, features, latent)

    def second(self, representation: int, latent: int, adapter1: nn.Module) -> nn.Module:
        """u2: one linear layer, nothing, or u1 itself."""
        if self.shared:
            return Borrowed(adapter1)
        return _adapter(self.second_exists, representation, latent)


TWO = Adapters(first_exists=True, second_exists=True)
SHARED = Adapters(first_exists=True, second_exists=True, shared=True)
NONE = Adapters(first_exists=False, second_exists=False)
SECOND_ONLY = Adapters(first_exists=False, second_exists=True)


def _adapter(exists: bool, inputs: int, outputs: int) -> nn.Module:
    if exists:
        return Linear(inputs, outputs)
    if inputs != outputs:
        raise ValueError(f"without an adapter the sizes must agree, got {inputs} and {outputs}")
    return nn.Identity()
