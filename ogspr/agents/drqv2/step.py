"""What the phases of an update hand on to each other."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ogspr.agents.drqv2.noise import UpdateNoise
from ogspr.types import Window


class Drawn(NamedTuple):
    """The batch of an update, and its noise."""

    window: Window
    noise: UpdateNoise


class Computed(NamedTuple):
    """What the forward pass leaves for the rest.

    All that branches were given is in here: it has to outlive the backward pass, which reads it on their
    streams, while memory that is let go may be used again on the stream it came from.
    """

    drawn: Drawn
    features: dict[str, Tensor]  # f of s_t and of s_{t+n}
    terms: dict[str, Tensor]  # both losses by name
    numbers: dict[str, Tensor]  # about the values
    h: Tensor  # of the critic's trunk, detached


class Gradients(NamedTuple):
    """Of one update, as one vector for each network, with its norm."""

    value: Tensor
    policy: Tensor
    value_norm: Tensor
    policy_norm: Tensor
