"""What is left of the method once it has learned: pictures in, actions out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ogspr.agents.acting import Actor
from ogspr.agents.actions import action_kind
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.networks import Perception, make_policy
from ogspr.agents.optimisation import copy_state
from ogspr.agents.protocol import Accelerator
from ogspr.types import Action, EnvSpec, UInt8Array


class OGSPRPolicy:
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
        self._actions = action_kind(
            spec.actions,
            temperature=config.gumbel_temperature,
            discrete_noise_scale=config.discrete_noise_scale,
        )
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            self._perception = Perception(spec.observation_shape, config.sizes, config.adapters).to(device)
            self._policy = make_policy(config.sizes, self._actions.size).to(device)
        respond = partial(
            accelerator.function(losses.plain_action),
            self._perception,
            self._policy,
            self._actions,
            config.pixel_range,
        )
        self._actor = Actor(respond, self._actions.size, accelerator, device, noisy=False)
        self._no_noise = np.random.default_rng(0)

    def act(self, observation: UInt8Array) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W); without noise."""
        batch = observation if observation.ndim == 4 else observation[None]
        actions = self._actions.to_environment(self._actor(batch, self._no_noise))
        return actions if observation.ndim == 4 else actions[0]

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """In place; ValueError where they are not of this kind of network."""
        copy_state(policy_weights(self._perception, self._policy), weights)


def policy_weights(perception: Perception, policy: torch.nn.Module) -> dict[str, Tensor]:
    """The weights that acting needs, by name; not copies."""
    parts = {"encoder": perception.encoder, "adapter1": perception.adapter1, "policy": policy}
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }
