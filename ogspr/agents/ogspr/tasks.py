"""The auxiliary tasks. Each is a value: its weight, the head it adds, and its loss.

symbol   shape            meaning
z        (B, Z)           state-action representation of the value batch
o        (B, C, H, W)     o_{t+1}, the frame that follows; bytes, to be scaled to `pixel_range`
R        (B,)             short-term return, the part of the value target without bootstrap
h        (B, D)           latent state a sequence starts from
a        (B, K, A)        its actions
h_target (K, B, D)        latent states of the target network, h'_{t+1} .. h'_{t+K}
alive    (B, K + 1)       1 while no earlier step of the sequence was terminal
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from ogspr.agents.ogspr.adapters import Adapters
from ogspr.errors import require_middle
from ogspr.nets.decoder import FrameDecoder
from ogspr.nets.mlp import MLP
from ogspr.ops.shift import scaled_pixels
from ogspr.ops.two_hot import symexp_bins, two_hot_cross_entropy
from ogspr.ops.values import Reduction, squared_error


class HeadSizes(NamedTuple):
    """The sizes a head may depend on."""

    representation: int  # Z
    latent: int  # D
    hidden: int
    decoder_channels: int
    frame_shape: tuple[int, int, int]


class Evidence(NamedTuple):
    """What an update has computed by the time the auxiliary losses are taken; see the table above."""

    z: Tensor
    next_frame: Tensor
    pixel_range: tuple[float, float]
    short_return: Tensor
    sequence_h: Tensor
    sequence_actions: Tensor
    sequence_targets: Tensor
    sequence_alive: Tensor


class AuxiliaryTask(Protocol):
    """Something else to predict from the representations."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def horizon(self) -> int:
        """The length of the sequences it needs from replay; 0: none."""
        ...

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:
        """The module this task adds to the value network."""
        ...

    def loss(self, head: nn.Module, state_action: nn.Module, seen: Evidence) -> Tensor: ...


@dataclass(frozen=True)
class ObservationPrediction:
    """L_rec = MSE(Dec(z_t), o_{t+1}) (eq. 7): the next frame, without those that s_t already shows."""

    name: ClassVar[str] = "observation"
    horizon: ClassVar[int] = 0

    weight: float = 0.1
    """Of its loss in the sum."""
    reduction: Reduction = "mean"
    """Open in the paper: mean or sum over pixels."""

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:  # noqa: ARG002
        return FrameDecoder(sizes.representation, sizes.decoder_channels, sizes.frame_shape)

    def loss(self, head: nn.Module, state_action: nn.Module, seen: Evidence) -> Tensor:  # noqa: ARG002
        # o_{t+1} exists even where the step to it was terminal.
        everywhere = torch.ones_like(seen.short_return)
        frame = scaled_pixels(seen.next_frame, *seen.pixel_range)
        return squared_error(head(seen.z).float(), frame, everywhere, self.reduction)


class TwoHotHead(nn.Module):
    """Two layers to logits over bins of returns."""

    bins: Tensor

    def __init__(self, inputs: int, hidden: int, bins: int, limit: float) -> None:
        super().__init__()
        self.logits = MLP((inputs, hidden, bins), nn.functional.elu)
        self.register_buffer("bins", symexp_bins(bins, limit), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.logits(z)
        return logits


@dataclass(frozen=True)
class ShortTermValue:
    """L_nstep = CE(q(z_t), TwoHot(R_t)) (eq. 6)."""

    name: ClassVar[str] = "short_term_value"
    horizon: ClassVar[int] = 0

    weight: float = 1.0
    """Of its loss in the sum."""
    bins: int = 65
    """Bins of the two-hot code."""
    limit: float = 10.0
    """symexp of it is the largest return that can be told apart: 22 025."""

    def __post_init__(self) -> None:
        require_middle(short_term_value_bins=self.bins)

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:  # noqa: ARG002
        return TwoHotHead(sizes.representation, sizes.hidden, self.bins, self.limit)

    def loss(self, head: nn.Module, state_action: nn.Module, seen: Evidence) -> Tensor:  # noqa: ARG002
        return two_hot_cross_entropy(head(seen.z), seen.short_return, cast(TwoHotHead, head).bins)


@dataclass(frozen=True)
class SelfPrediction:
    """L_self = sum_k MSE(h^_{t+k}, h'_{t+k}) with h^_{t+k+1} = u2(g(h^_{t+k}, a_{t+k})) (eq. 8, 9)."""

    name: ClassVar[str] = "self_prediction"

    weight: float = 5.0
    """Of its loss in the sum."""
    horizon: int = 5
    """Steps that are predicted."""
    reduction: Reduction = "mean"
    """Open in the paper: mean or sum over latent dimensions."""

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:
        return adapters.second(sizes.representation, sizes.latent, adapter1)

    def loss(self, head: nn.Module, state_action: nn.Module, seen: Evidence) -> Tensor:
        h = seen.sequence_h
        losses = []
        for k in range(self.horizon):
            h = head(state_action(h, seen.sequence_actions[:, k]))
            # alive[k]: the state after a terminal step is still seen, those beyond it are not.
            alive = seen.sequence_alive[:, k]
            losses.append(squared_error(h, seen.sequence_targets[k], alive, self.reduction))
        return torch.stack(losses).sum()
