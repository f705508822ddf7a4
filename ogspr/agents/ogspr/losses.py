"""What an update computes, as functions of networks and tensors. Equation numbers are the paper's.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    h         (N, D)                latent state, u1(f(s))
    a         (N, A)                action vector
    z         (N, Z)                state-action representation, g(h, a)
    Q         (2, N)                the two long-term values of z
    y         (N,)                  their target
    R         (N,)                  short-term return, the part of y without bootstrap
A prime, here a trailing `_target`, marks the target network.
"""

from __future__ import annotations

from torch import Tensor, nn

from ogspr.agents.actions import ActionKind
from ogspr.agents.ogspr.networks import Core
from ogspr.ops.returns import value_target
from ogspr.ops.shift import scaled_pixels, shifted_stacks
from ogspr.ops.values import clipped_noise, lap_priority, policy_loss, value_loss


def pictures(
    frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
) -> Tensor:
    """Frame stacks from replay, shifted and scaled: (N, S), (N, 2) -> (N, S * C, H, W)."""
    return scaled_pixels(shifted_stacks(frames, slots, offsets, pad), *pixel_range)


def latents(
    core: Core, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
) -> Tensor:
    """h = u1(f(s)) of shifted observations (eq. 1): (N, S), (N, 2) -> (N, D)."""
    return core.latent(pictures(frames, slots, offsets, pad, pixel_range)).float()


def bootstrapped_target(
    core_target: Core,
    policy_target: nn.Module,
    actions: ActionKind,
    h_target: Tensor,
    normals: Tensor,
    uniforms: Tensor,
    noise_scale: float,
    noise_limit: float,
    short_return: Tensor,
    alive: Tensor,
    discount: float,
    scales: tuple[Tensor, Tensor],
) -> Tensor:
    """y (eq. 2, 3): (B, D) -> (B,). `scales`: units of the values that learn, and of those that bootstrap."""
    action = actions.activate(policy_target(h_target).float(), uniforms)
    action = actions.perturb(action, clipped_noise(normals, noise_scale, noise_limit))
    next_values = core_target.values(core_target.state_action(h_target, action))
    return value_target(short_return, next_values, alive, discount, *scales)


def long_term_loss(
    core: Core, z: Tensor, y: Tensor, exponent: float, minimum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """L_value (eq. 4), the new priorities (B,), and the mean of Q."""
    values = core.values(z)
    priorities = lap_priority(values.detach(), y, exponent, minimum)
    return value_loss(values, y), priorities, values.detach().mean()


def actor_loss(
    policy: nn.Module, core_frozen: Core, actions: ActionKind, h: Tensor, uniforms: Tensor, weight: float
) -> Tensor:
    """L_policy (eq. 5) at h, which the caller detached, under values that take no gradient."""
    pre_activation = policy(h).float()
    action = actions.activate(pre_activation, uniforms)
    values = core_frozen.values(core_frozen.state_action(h, action))
    return policy_loss(values, pre_activation, weight)


def represent(state_action: nn.Module, h: Tensor, action: Tensor) -> Tensor:
    """z = g(h, a) (eq. 1)."""
    z: Tensor = state_action(h, action)
    return z.float()


def noisy_action(
    core: Core,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    noise_scale: float,
    observations: Tensor,
    normals: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """What exploration does: (N, S * C, H, W) uint8 -> (N, A)."""
    h = core.latent(scaled_pixels(observations, *pixel_range)).float()
    action = actions.activate(policy(h).float(), uniforms)
    return actions.perturb(action, normals * noise_scale)


def plain_action(
    core: Core,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    noise_scale: float,  # noqa: ARG001 (called like noisy_action)
    observations: Tensor,
    normals: Tensor,  # noqa: ARG001
    uniforms: Tensor,  # noqa: ARG001
) -> Tensor:
    """What evaluation does: no noise of any kind."""
    h = core.latent(scaled_pixels(observations, *pixel_range)).float()
    return actions.mode(policy(h).float())
