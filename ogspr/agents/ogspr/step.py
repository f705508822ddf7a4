"""What the phases of an update hand on to each other."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ogspr.agents.ogspr.noise import UpdateNoise
from ogspr.types import Window


class Drawn(NamedTuple):
    """The two batches of an update, and its noise."""

    value: Window
    sequence: Window
    noise: UpdateNoise


class Evidence(NamedTuple):
    """What has been computed by the time the auxiliary losses are taken."""

    z: Tensor  # (B, Z), what the values see
    z_aux: Tensor  # (B, Z), what decoder and short-term value see
    next_frame: Tensor  # o_{t+1}: (B, C, H, W), bytes
    short_return: Tensor  # R: (B,)
    sequence_h: Tensor  # (B, D), where each sequence starts
    sequence_actions: Tensor  # (B, K, A)
    sequence_targets: Tensor  # h'_{t+1} .. h'_{t+K} of the target network: (K, B, D)
    sequence_alive: Tensor  # (B, K + 1)


class Judgement(NamedTuple):
    """What the value loss says about its batch besides itself."""

    priorities: Tensor  # (B,)
    numbers: dict[str, Tensor]


class Computed(NamedTuple):
    """What the forward pass leaves for the rest.

    All that branches were given is in here: it has to outlive the backward pass, which reads it on their
    streams, while memory that is let go may be used again on the stream it came from.
    """

    drawn: Drawn
    seen: Evidence
    terms: dict[str, Tensor]  # every loss by name
    judged: Judgement
    h: Tensor  # of the value batch, detached


class Gradients(NamedTuple):
    """Of one update, as one vector for each group of parameters, with the norm of each."""

    value: list[Tensor]
    policy: list[Tensor]
    value_norms: list[Tensor]
    policy_norms: list[Tensor]
