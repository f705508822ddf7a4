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

import torch
from torch import Tensor, nn

from ogspr.agents.actions import ActionKind
from ogspr.agents.ogspr.networks import Core, Perception
from ogspr.agents.ogspr.noise import UpdateNoise
from ogspr.ops.returns import value_target
from ogspr.ops.shift import scaled_pixels, shifted_stacks
from ogspr.ops.values import clipped_noise, lap_priority, policy_loss, value_loss
from ogspr.types import Window

Look = tuple[int, tuple[float, float]]  # largest shift, range of scaled pixels


def next_frame(value: Window, noise: UpdateNoise, pad: int) -> Tensor:
    """o_{t+1}, shifted like s_t: (B, C, H, W) uint8."""
    return shifted_stacks(value.frames, value.newest_frame(1), noise.now, pad)


def online_latents(
    core: Core, value: Window, sequence: Window, noise: UpdateNoise, look: Look
) -> tuple[Tensor, Tensor]:
    """h_t of the value batch and of the sequences (eq. 1): (B, D) each."""
    slots = torch.cat((value.stack(0), sequence.stack(0)))
    offsets = torch.cat((noise.now, noise.sequence_now))
    h = core.latent_of_stacks(value.frames, slots, offsets, *look)
    h_value, h_sequence = torch.split(h, [len(noise.now), len(noise.sequence_now)])
    return h_value, h_sequence


def target_latents(
    core_target: Core, value: Window, sequence: Window, noise: UpdateNoise, look: Look
) -> tuple[Tensor, Tensor]:
    """h'_{t+n} of the value batch, (B, D), and h'_{t+1} .. h'_{t+K} of the sequences, (K, B, D)."""
    steps = range(1, sequence.horizon + 1)
    slots = torch.cat([value.stack(value.horizon), *(sequence.stack(k) for k in steps)])
    offsets = torch.cat((noise.later, noise.sequence_later))
    h = core_target.latent_of_stacks(value.frames, slots, offsets, *look)
    h_value, h_sequence = torch.split(h, [len(noise.later), len(noise.sequence_later)])
    return h_value, h_sequence.view(sequence.horizon, len(noise.sequence_now), h.shape[1])


def bootstrapped_target(
    core_target: Core,
    policy_target: nn.Module,
    actions: ActionKind,
    h_target: Tensor,
    short_return: Tensor,
    alive: Tensor,
    noise: UpdateNoise,
    noise_scale: float,
    noise_limit: float,
    discount: float,
    scales: tuple[Tensor, Tensor],
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
    core: Core, z: Tensor, y: Tensor, exponent: float, minimum: float
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """L_value (eq. 4), the new priorities (B,), and numbers about both by the names in JUDGED."""
    values = core.values(z)
    q = values.detach()
    priorities = lap_priority(q, y, exponent, minimum)
    numbers = (q.mean(), y.mean(), priorities.mean(), priorities.max())
    return value_loss(values, y), priorities, dict(zip(JUDGED, numbers, strict=True))


def actor_loss(
    policy: nn.Module, core_frozen: Core, actions: ActionKind, h: Tensor, uniforms: Tensor, weight: float
) -> Tensor:
    """L_policy (eq. 5) at h, which the caller detached, under values that take no gradient."""
    pre_activation = policy(h)
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
    h = core.latent(scaled_pixels(observations, *pixel_range))
    action = actions.activate(policy(h), uniforms)
    return actions.perturb(action, normals * noise_scale)


def plain_action(
    core: Perception,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    observations: Tensor,
) -> Tensor:
    """What evaluation does: no noise of any kind."""
    h = core.latent(scaled_pixels(observations, *pixel_range))
    return actions.mode(policy(h))
