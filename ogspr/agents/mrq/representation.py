"""What the method has learned to see: latent states and state-action representations, frozen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.frozen import FrozenRepresentation
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.networks import Perception, StateActionEncoder
from ogspr.types import EnvSpec


class MRQRepresentation(FrozenRepresentation):
    """f and g with the weights of a trained agent.

    Args:
        config: The method's numbers.
        spec: The environment it was trained in.
        tensors: Of the agent's state; ValueError where they are not of this kind of network.
        device: Where it computes.
    """

    def __init__(
        self, config: MRQConfig, spec: EnvSpec, tensors: Mapping[str, Tensor], *, device: torch.device
    ) -> None:
        actions = action_kind(spec.actions, config.gumbel_temperature, config.discrete_noise_scale)
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            perception = Perception(spec.observation_shape, config.sizes)
            state_action = StateActionEncoder(actions.size, config.sizes)
        super().__init__(
            perception,
            state_action,
            parts={"core.encoder": perception.encoder, "core.state_action": state_action},
            tensors=tensors,
            actions=actions,
            pixel_range=config.pixel_range,
            device=device,
        )
