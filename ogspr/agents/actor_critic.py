"""Actor and critic on latent states: what methods with separate f, g, Q and pi have in common.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    h         (N, D)                latent state
    a         (N, A)                action vector
    z         (N, Z)                state-action representation, g(h, a)
    Q         (2, N)                the two long-term values of z
    y         (N,)                  their target
Equation numbers are those of the OG-SPR paper. A prime, here a trailing `_target`, marks the target network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.protocol import ActionKind, Carry, Noise, Normal, Runner, Uniform
from ogspr.nets import MLP, Initialise, xavier
from ogspr.ops.images import scaled_pixels
from ogspr.ops.values import clipped_noise, gumbel, lap_priority, policy_loss, value_loss, value_target
from ogspr.types import Action, ActionSpec, ContinuousActions, Reduction

# --- the two kinds of actions ------------------------------------------------------------------------


@dataclass(frozen=True)
class Continuous:
    """Vectors in [-1, 1]: tanh."""

    size: int

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:  # noqa: ARG002
        return torch.tanh(pre_activation)

    def mode(self, pre_activation: Tensor) -> Tensor:
        return torch.tanh(pre_activation)

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        return (action + noise).clamp(-1.0, 1.0)

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action:
        return vectors

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return np.asarray(action, np.float32)


@dataclass(frozen=True)
class Discrete:
    """One-hot vectors: Gumbel-Softmax for gradients, argmax for the environment.

    Args:
        noise_scale: Factor on all action noise (the paper: 1; MR.Q halves it).
    """

    size: int
    temperature: float
    noise_scale: float

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:
        return F.softmax((pre_activation + gumbel(uniforms)) / self.temperature, dim=-1)

    def mode(self, pre_activation: Tensor) -> Tensor:
        return self._one_hot(pre_activation)

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        return self._one_hot(action + self.noise_scale * noise)

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action:
        return np.asarray(vectors.argmax(-1))

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]:
        one_hot: npt.NDArray[np.float32] = np.eye(self.size, dtype=np.float32)[np.asarray(action)]
        return one_hot

    def _one_hot(self, scores: Tensor) -> Tensor:
        return F.one_hot(scores.argmax(-1), self.size).float()


def action_kind(spec: ActionSpec, gumbel_temperature: float, discrete_noise_scale: float = 1.0) -> ActionKind:
    if isinstance(spec, ContinuousActions):
        return Continuous(spec.size)
    return Discrete(spec.count, gumbel_temperature, discrete_noise_scale)


# --- networks and equations --------------------------------------------------------------------------


def make_policy(latent: int, hidden: int, action_size: int, initialise: Initialise = xavier) -> MLP:
    """pi: latent state -> pre-activation of the action."""
    return MLP((latent, hidden, hidden, action_size), F.relu, initialise)


class Sight(Protocol):
    """Maps images to latent states."""

    def latent(self, images: Tensor) -> Tensor:
        """(N, S * C, H, W) -> (N, D)."""
        ...


class Critic(Protocol):
    """Judges actions in latent states."""

    state_action: Any  # a module: (N, D), (N, A) -> (N, Z)

    def values(self, z: Tensor) -> Tensor:
        """(N, Z) -> (2, N)."""
        ...


class TargetNoise(Protocol):
    """What a value target leaves to chance."""

    @property
    def target_action(self) -> Tensor:
        """(B, A) standard normal."""
        ...

    @property
    def target_gumbel(self) -> Tensor:
        """(B, A) in [0, 1)."""
        ...


def represent(state_action: nn.Module, h: Tensor, action: Tensor) -> Tensor:
    """z = g(h, a) (eq. 1)."""
    z: Tensor = state_action(h, action)
    return z


def bootstrapped_target(
    core_target: Critic,
    policy_target: nn.Module,
    actions: ActionKind,
    h_target: Tensor,
    short_return: Tensor,
    alive: Tensor,
    noise: TargetNoise,
    noise_scale: float,
    noise_limit: float,
    discount: float,
    scales: tuple[Tensor | float, Tensor | float] = (1.0, 1.0),
) -> Tensor:
    """y (eq. 2, 3): (B, D) -> (B,).

    `scales`: the units of the values that learn, and of those that bootstrap.
    """
    action = actions.activate(policy_target(h_target), noise.target_gumbel)
    action = actions.perturb(action, clipped_noise(noise.target_action, noise_scale, noise_limit))
    next_values = core_target.values(core_target.state_action(h_target, action))
    return value_target(short_return, next_values, alive, discount, *scales)


VALUE_STATS = ("q_mean", "target_mean", "priority_mean", "priority_max")


def long_term_loss(
    core: Critic, z: Tensor, y: Tensor, reduction: Reduction, exponent: float, minimum: float
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """L_value (eq. 4), the new priorities (B,), and numbers about both by the names in VALUE_STATS.

    `reduction` is over the two values.
    """
    values = core.values(z)
    q = values.detach()
    priorities = lap_priority(q, y, exponent, minimum)
    numbers = (q.mean(), y.mean(), priorities.mean(), priorities.max())
    return value_loss(values, y, reduction), priorities, dict(zip(VALUE_STATS, numbers, strict=True))


def actor_loss(
    policy: nn.Module, core_frozen: Critic, actions: ActionKind, h: Tensor, uniforms: Tensor, weight: float
) -> Tensor:
    """L_policy (eq. 5) at h, which the caller detached, under values that take no gradient."""
    pre_activation = policy(h)
    action = actions.activate(pre_activation, uniforms)
    values = core_frozen.values(core_frozen.state_action(h, action))
    return policy_loss(values, pre_activation, weight)


def noisy_action(
    core: Sight,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    noise_scale: float,
    images: Tensor,
    normals: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """What exploration does: (N, S * C, H, W) uint8 -> (N, A)."""
    h = core.latent(scaled_pixels(images, *pixel_range))
    action = actions.activate(policy(h), uniforms)
    return actions.perturb(action, normals * noise_scale)


def plain_action(
    core: Sight, policy: nn.Module, actions: ActionKind, pixel_range: tuple[float, float], images: Tensor
) -> Tensor:
    """What evaluation does: no noise of any kind."""
    h = core.latent(scaled_pixels(images, *pixel_range))
    return actions.mode(policy(h))


class ActNoise(NamedTuple):
    """What one noisy action for each of N environments leaves to chance."""

    normals: Any  # (N, A) standard normal
    uniforms: Any  # (N, A) in [0, 1), for the Gumbel-Softmax


@dataclass(frozen=True)
class PixelActor:
    """Acts by a policy on latent states, with normal noise of one size while it explores. No memory."""

    sight: Sight
    policy: nn.Module
    actions: ActionKind
    modules: Mapping[str, nn.Module]
    pixel_range: tuple[float, float]
    exploration_noise: float
    runner: Runner
    sampled_evaluation: bool = False
    """Whether evaluation samples discrete actions: exploration without its normal noise."""

    def initial_carry(self, count: int) -> Carry:  # noqa: ARG002
        return {}

    def noise(self, count: int, explore: bool) -> Noise:
        shape = (count, self.actions.size)
        return ActNoise(Normal(shape), Uniform(shape)) if explore or self.sampled_evaluation else ()

    def at_step(self, agent_steps: int) -> None:
        """Nothing here follows a schedule."""

    def act(
        self,
        images: Tensor,
        carry: Carry,
        first: Tensor,  # noqa: ARG002
        noise: Any,
        explore: bool,
    ) -> tuple[Tensor, Carry]:
        networks = (self.sight, self.policy, self.actions, self.pixel_range)
        if not noise:
            return self._plain(*networks, images), carry
        return self._noisy(*networks, self.exploration_noise if explore else 0.0, images, *noise), carry

    @cached_property
    def _noisy(self) -> Callable[..., Tensor]:
        return self.runner.function(noisy_action)

    @cached_property
    def _plain(self) -> Callable[..., Tensor]:
        return self.runner.function(plain_action)


@dataclass(frozen=True)
class PixelRepresentation:
    """h of images, and z = g(h, a)."""

    sight: Sight
    state_action: nn.Module
    actions: ActionKind
    modules: Mapping[str, nn.Module]
    pixel_range: tuple[float, float]

    def encode(self, images: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        h = self.sight.latent(scaled_pixels(images, *self.pixel_range))
        return h, represent(self.state_action, h, actions)
