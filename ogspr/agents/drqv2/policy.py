"""What is left of the method once it has learned: pictures in, actions out."""

from __future__ import annotations

import torch
from torch import nn

from ogspr.agents.drqv2.config import DrQv2Config
from ogspr.agents.drqv2.networks import PIXEL_RANGE, Perception, PolicyNetwork, continuous_actions
from ogspr.agents.frozen import FrozenPolicy
from ogspr.agents.protocol import Accelerator
from ogspr.types import EnvSpec


class DrQv2Policy(FrozenPolicy):
    """Acts with weights that it is given, and never changes them.

    Args:
        config: The settings.
        spec: The environment it is made for.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: DrQv2Config, spec: EnvSpec, *, device: torch.device, accelerator: Accelerator
    ) -> None:
        actions = continuous_actions(spec)
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            perception = Perception(spec.observation_shape, config.sizes)
            policy = PolicyNetwork(perception.encoder.size, actions.size, config.sizes)
        super().__init__(
            perception,
            policy,
            parts=policy_parts(perception, policy),
            actions=actions,
            pixel_range=PIXEL_RANGE,
            device=device,
            accelerator=accelerator,
        )


def policy_parts(perception: Perception, policy: nn.Module) -> dict[str, nn.Module]:
    """The modules that acting needs, by name."""
    return {"encoder": perception.encoder, "policy": policy}
