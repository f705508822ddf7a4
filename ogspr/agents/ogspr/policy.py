"""What is left of the method once it has learned: pictures in, actions out."""

from __future__ import annotations

import torch
from torch import nn

from ogspr.agents.actions import action_kind
from ogspr.agents.actor_critic import make_policy
from ogspr.agents.frozen import FrozenPolicy
from ogspr.agents.ogspr.config import PIXEL_RANGE, OGSPRConfig
from ogspr.agents.ogspr.networks import Perception
from ogspr.agents.protocol import Accelerator
from ogspr.types import EnvSpec


class OGSPRPolicy(FrozenPolicy):
    """Acts with weights that it is given, and never changes them.

    Args:
        config: The variant.
        spec: The environment it is made for.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: OGSPRConfig, spec: EnvSpec, *, device: torch.device, accelerator: Accelerator
    ) -> None:
        actions = action_kind(spec.actions, config.gumbel_temperature)
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            perception = Perception(spec.observation_shape, config.sizes, config.adapters)
            policy = make_policy(config.sizes.latent, config.sizes.policy_hidden, actions.size)
        super().__init__(
            perception,
            policy,
            parts=policy_parts(perception, policy),
            actions=actions,
            pixel_range=PIXEL_RANGE,
            device=device,
            accelerator=accelerator,
            sampled=config.sampled_evaluation,
        )


def policy_parts(perception: Perception, policy: nn.Module) -> dict[str, nn.Module]:
    """The modules that acting needs, by name."""
    return {"encoder": perception.encoder, "adapter1": perception.adapter1, "policy": policy}
