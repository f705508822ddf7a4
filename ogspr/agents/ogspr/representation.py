"""What the method has learned to see: latent states and state-action representations, frozen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.frozen import FrozenRepresentation
from ogspr.agents.ogspr.config import PIXEL_RANGE, OGSPRConfig
from ogspr.agents.ogspr.networks import Perception, StateActionEncoder
from ogspr.types import EnvSpec


class OGSPRRepresentation(FrozenRepresentation):
    """f, u1 and g with the weights of a trained agent.

    Args:
        config: The variant.
        spec: The environment it was trained in.
        tensors: Of the agent's state; ValueError where they are not of this kind of network.
        device: Where it computes.
    """

    def __init__(
        self, config: OGSPRConfig, spec: EnvSpec, tensors: Mapping[str, Tensor], *, device: torch.device
    ) -> None:
        sizes = config.sizes
        actions = action_kind(spec.actions, config.gumbel_temperature)
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            perception = Perception(spec.observation_shape, sizes, config.adapters)
            state_action = StateActionEncoder(
                sizes.latent, actions.size, sizes.state_action_hidden, sizes.representation
            )
        super().__init__(
            perception,
            state_action,
            parts={
                "value_network.core.encoder": perception.encoder,
                "value_network.core.adapter1": perception.adapter1,
                "value_network.core.state_action": state_action,
            },
            tensors=tensors,
            actions=actions,
            pixel_range=PIXEL_RANGE,
            device=device,
        )
