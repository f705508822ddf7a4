"""What is left of a method once it has learned, made of the networks it needs: nothing here learns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ogspr.agents.acting import actions_for, as_batch
from ogspr.agents.actions import ActionKind
from ogspr.agents.actor_critic import Sight
from ogspr.agents.behaviour import evaluating_actor
from ogspr.agents.optimisation import copy_state
from ogspr.agents.protocol import Accelerator
from ogspr.ops.shift import scaled_pixels
from ogspr.types import Action, UInt8Array


def named_weights(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The tensors of modules, each by the name of its module and its own; not copies."""
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


class FrozenPolicy:
    """Pictures in, actions out, with weights that it is given and never changes.

    Args:
        sight: From pictures to latent states.
        policy: From there to pre-activations of actions.
        parts: The modules whose weights these are, by the names that `load_weights` is given.
        actions: The kind of actions.
        pixel_range: What bytes 0 and 255 become.
        device: Where it computes.
        accelerator: How its tensor code is run.
        sampled: Whether discrete actions are drawn from the policy's probabilities; else, the likeliest one.
    """

    def __init__(
        self,
        sight: Sight,
        policy: nn.Module,
        *,
        parts: Mapping[str, nn.Module],
        actions: ActionKind,
        pixel_range: tuple[float, float],
        device: torch.device,
        accelerator: Accelerator,
        sampled: bool = False,
    ) -> None:
        for module in parts.values():
            module.to(device)
        self._parts = parts
        self._actions = actions
        self._actor = evaluating_actor(
            sight, policy, actions, pixel_range, accelerator, device, sampled=sampled
        )

    def act(self, observation: UInt8Array, rng: np.random.Generator) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W).

        A policy that draws its actions takes its random numbers from `rng`; others leave it alone.
        """
        vectors = self._actor.ask(as_batch(observation), rng)()
        return actions_for(observation, self._actions.to_environment(vectors))

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """In place; ValueError where they are not of this kind of network."""
        copy_state(named_weights(self._parts), weights)


class FrozenRepresentation:
    """Latent states and state-action representations, with the weights of a trained agent.

    Args:
        sight: From pictures to latent states.
        state_action: From there, with an action vector, to representations.
        parts: The modules whose weights these are, by the names they have in an agent's state.
        tensors: Of the agent's state; ValueError where they are not of this kind of network.
        actions: The kind of actions.
        pixel_range: What bytes 0 and 255 become.
        device: Where it computes.
    """

    def __init__(
        self,
        sight: Sight,
        state_action: nn.Module,
        *,
        parts: Mapping[str, nn.Module],
        tensors: Mapping[str, Tensor],
        actions: ActionKind,
        pixel_range: tuple[float, float],
        device: torch.device,
    ) -> None:
        for module in parts.values():
            module.to(device).requires_grad_(False)
        self._sight = sight
        self._state_action = state_action
        self._parts = parts
        self._actions = actions
        self._pixel_range = pixel_range
        self._device = device
        ours = tuple(f"{part}." for part in parts)
        copy_state(self.weights(), {name: tensors[name] for name in tensors if name.startswith(ours)})

    def encode(self, observations: UInt8Array, actions: Action) -> tuple[Tensor, Tensor]:
        """h and z = g(h, a), in float32 and without a shift."""
        pictures = torch.from_numpy(observations).to(self._device)
        vectors = torch.from_numpy(self._actions.to_vector(actions)).to(self._device)
        h = self._sight.latent(scaled_pixels(pictures, *self._pixel_range))
        z: Tensor = self._state_action(h, vectors)
        return h, z

    def weights(self) -> dict[str, Tensor]:
        """By the names they have in an agent's state; not copies."""
        return named_weights(self._parts)
