"""The adapters around the latent state as values: which of the two exist, and whether they are one.

Part of a configuration, which a command line reads: what needs torch is imported once something is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


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
        from ogspr.agents.ogspr.heads import adapter

        return adapter(self.first_exists, features, latent)

    def second(self, representation: int, latent: int, adapter1: nn.Module) -> nn.Module:
        """u2: one linear layer, nothing, or u1 itself."""
        from ogspr.agents.ogspr.heads import Borrowed, adapter

        return Borrowed(adapter1) if self.shared else adapter(self.second_exists, representation, latent)


TWO = Adapters(first_exists=True, second_exists=True)
SHARED = Adapters(first_exists=True, second_exists=True, shared=True)
NONE = Adapters(first_exists=False, second_exists=False)
SECOND_ONLY = Adapters(first_exists=False, second_exists=True)
