"""The auxiliary tasks. Each is a value: its weight, the head it adds, and its loss.

Part of a configuration, which a command line reads: what needs torch is imported once something is built.
The losses themselves are in `losses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from ogspr.agents.ogspr.adapters import Adapters
from ogspr.errors import require_middle

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from ogspr.agents.ogspr.heads import HeadSizes
    from ogspr.agents.ogspr.step import Evidence

    TaskLoss = Callable[[nn.Module, nn.Module, Evidence], Tensor]
    """A function of the task's head, of g, and of what an update has computed."""


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

    def loss(self) -> TaskLoss:
        """What it adds to the sum. Asked for once: what is compiled should not have to import anything."""
        ...


@dataclass(frozen=True)
class ObservationPrediction:
    """Predicts the next frame, without those that s_t already shows (eq. 7)."""

    name: ClassVar[str] = "observation"
    horizon: ClassVar[int] = 0

    weight: float = 0.1
    """Weight of its loss, which adds up the errors of all pixels (code)."""

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:  # noqa: ARG002
        from ogspr.nets.decoder import FrameDecoder

        return FrameDecoder(
            sizes.representation, sizes.decoder_inputs, sizes.decoder_channels, sizes.frame_shape
        )

    def loss(self) -> TaskLoss:
        from ogspr.agents.ogspr.losses import frame_loss

        return lambda head, _state_action, seen: frame_loss(head, seen)


@dataclass(frozen=True)
class ShortTermValue:
    """Predicts the return of the next steps (eq. 6)."""

    name: ClassVar[str] = "short_term_value"
    horizon: ClassVar[int] = 0

    weight: float = 1.0
    """Weight of its loss."""
    bins: int = 65
    """Bins of the two-hot code."""
    limit: float = 10.0
    """symexp of it is the largest return that can be told apart: 22 025."""

    def __post_init__(self) -> None:
        require_middle(short_term_value_bins=self.bins)

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:  # noqa: ARG002
        from ogspr.agents.ogspr.heads import TwoHotHead

        return TwoHotHead(sizes.representation, sizes.hidden, self.bins, self.limit)

    def loss(self) -> TaskLoss:
        from ogspr.agents.ogspr.losses import short_return_loss

        return lambda head, _state_action, seen: short_return_loss(head, seen)


@dataclass(frozen=True)
class SelfPrediction:
    """Predicts the next latent states (eq. 8, 9)."""

    name: ClassVar[str] = "self_prediction"

    weight: float = 5.0
    """Weight of its loss, for each step the mean over latent dimensions (code)."""
    horizon: int = 5
    """Steps that are predicted."""

    def head(self, sizes: HeadSizes, adapters: Adapters, adapter1: nn.Module) -> nn.Module:
        return adapters.second(sizes.representation, sizes.latent, adapter1)

    def loss(self) -> TaskLoss:
        from ogspr.agents.ogspr.losses import latent_loss

        return lambda head, state_action, seen: latent_loss(head, state_action, seen, self.horizon)
