"""What the method has learned to see: latent states and state-action representations, frozen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.networks import Perception, StateActionEncoder
from ogspr.agents.optimisation import copy_state
from ogspr.ops.shift import scaled_pixels
from ogspr.types import Action, EnvSpec, UInt8Array

# How the tensors of f, u1 and g begin among those of an agent.
_SAVED_AS = tuple(f"value_network.core.{part}." for part in ("encoder", "adapter1", "state_action"))


class OGSPRRepresentation:
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
        self._actions = action_kind(
            spec.actions,
            temperature=config.gumbel_temperature,
            discrete_noise_scale=config.discrete_noise_scale,
        )
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            self._perception = Perception(spec.observation_shape, sizes, config.adapters)
            self._state_action = StateActionEncoder(
                sizes.latent, self._actions.size, sizes.state_action_hidden, sizes.representation
            )
        for module in (self._perception, self._state_action):
            module.to(device).requires_grad_(False)
        self._pixel_range = config.pixel_range
        self._device = device
        self._load(tensors)

    def encode(self, observations: UInt8Array, actions: Action) -> tuple[Tensor, Tensor]:
        """h = u1(f(s)) and z = g(h, a), in float32 and without a shift."""
        pictures = torch.from_numpy(observations).to(self._device)
        vectors = torch.from_numpy(self._actions.to_vector(actions)).to(self._device)
        h = self._perception.latent(scaled_pixels(pictures, *self._pixel_range))
        z: Tensor = self._state_action(h, vectors)
        return h, z

    def weights(self) -> dict[str, Tensor]:
        """By the names they have in an agent's state; not copies."""
        parts = (self._perception.encoder, self._perception.adapter1, self._state_action)
        return {
            f"{prefix}{name}": tensor
            for prefix, module in zip(_SAVED_AS, parts, strict=True)
            for name, tensor in module.state_dict().items()
        }

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        copy_state(self.weights(), {name: tensors[name] for name in tensors if name.startswith(_SAVED_AS)})
