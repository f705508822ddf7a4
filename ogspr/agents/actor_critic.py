"""Actor and critic on latent states: what methods that tell f, g, Q and pi apart have in common.

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

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actions import ActionKind
from ogspr.nets.mlp import MLP
from ogspr.nets.weights import Initialise, xavier
from ogspr.ops.reduction import Reduction
from ogspr.ops.returns import value_target
from ogspr.ops.shift import scaled_pixels
from ogspr.ops.values import clipped_noise, lap_priority, policy_loss, value_loss


def make_policy(latent: int, hidden: int, action_size: int, initialise: Initialise = xavier) -> MLP:
    """pi: latent state -> pre-activation of the action."""
    return MLP((latent, hidden, hidden, action_size), F.relu, initialise)


class Sight(Protocol):
    """Sees latent states in pictures."""

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


JUDGED = ("q_mean", "target_mean", "priority_mean", "priority_max")


def long_term_loss(
    core: Critic, z: Tensor, y: Tensor, reduction: Reduction, exponent: float, minimum: float
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """L_value (eq. 4), the new priorities (B,), and numbers about both by the names in JUDGED.

    `reduction` is over the two values.
    """
    values = core.values(z)
    q = values.detach()
    priorities = lap_priority(q, y, exponent, minimum)
    numbers = (q.mean(), y.mean(), priorities.mean(), priorities.max())
    return value_loss(values, y, reduction), priorities, dict(zip(JUDGED, numbers, strict=True))


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
    observations: Tensor,
    normals: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """What exploration does: (N, S * C, H, W) uint8 -> (N, A)."""
    h = core.latent(scaled_pixels(observations, *pixel_range))
    action = actions.activate(policy(h), uniforms)
    return actions.perturb(action, normals * noise_scale)


def plain_action(
    core: Sight,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    observations: Tensor,
) -> Tensor:
    """What evaluation does: no noise of any kind."""
    h = core.latent(scaled_pixels(observations, *pixel_range))
    return actions.mode(policy(h))
