"""What an update computes, as functions of networks and tensors.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    f         (N, F)                features of s
    h         (N, D)                what a trunk makes of f
    a         (N, A)                action vector
    sigma     ()                    standard deviation of the noise on actions, by the schedule
    Q         (2, N)                the two values
    y         (N,)                  their target
A trailing `_target` marks the target network.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ogspr.agents.drqv2.networks import PIXEL_RANGE, Critic, Perception
from ogspr.ops.images import scaled_pixels, shift_offsets
from ogspr.ops.values import n_step_return, truncated_normal, value_target
from ogspr.types import Window


class UpdateNoise(NamedTuple):
    """What one update leaves to chance (B windows, A numbers an action)."""

    now: Any  # (2, B) in [0, 1), shift of s_t
    later: Any  # (2, B) in [0, 1), shift of s_{t+n}
    target_action: Any  # (B, A) standard normal
    policy_action: Any  # (B, A) standard normal


def features_of(perception: Perception, window: Window, k: int, uniforms: Tensor, pad: int) -> Tensor:
    """f of s_{t+k}, shifted: (B, F)."""
    offsets = shift_offsets(uniforms, pad).T
    features: Tensor = perception.encoder.of_stacks(window.frames, window.stack(k), offsets, pad, PIXEL_RANGE)
    return features


def policy_action(policy: nn.Module, f: Tensor, sigma: Tensor, normals: Tensor, limit: float) -> Tensor:
    """a = pi(f) with clipped noise: (N, F) -> (N, A)."""
    return truncated_normal(torch.tanh(policy(f)), sigma, normals, limit)


def bootstrapped_target(
    critic_target: Critic,
    policy: nn.Module,
    f_later: Tensor,
    window: Window,
    sigma: Tensor,
    normals: Tensor,
    limit: float,
    discount: float,
) -> Tensor:
    """y = sum_i gamma^i r_{t+i} + gamma^n min_j Q'_j(f_{t+n}, a'), ended by a terminal: (B,)."""
    action = policy_action(policy, f_later, sigma, normals, limit)
    next_values = critic_target.values(critic_target.trunk(f_later), action)
    unit = sigma.new_ones(())
    short_return = n_step_return(window.rewards, window.alive, discount)
    return value_target(short_return, next_values, window.alive, discount, unit, unit)


VALUE_STATS = ("q_mean", "target_mean")


def critic_loss(
    critic: Critic, f: Tensor, action: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """MSE(Q1, y) + MSE(Q2, y), the trunk's h, and numbers about the values by the names in VALUE_STATS."""
    h = critic.trunk(f)
    values = critic.values(h, action)
    loss = (values - y).square().mean(1).sum()
    numbers = (values.detach().mean(), y.mean())
    return loss, h.detach(), dict(zip(VALUE_STATS, numbers, strict=True))


def actor_loss(
    policy: nn.Module, critic_frozen: Critic, f: Tensor, sigma: Tensor, normals: Tensor, limit: float
) -> Tensor:
    """-mean min(Q1, Q2) at f, which the caller detached, under values that take no gradient."""
    action = policy_action(policy, f, sigma, normals, limit)
    return -critic_frozen.values(critic_frozen.trunk(f), action).amin(0).mean()


def noisy_action(
    perception: Perception,
    policy: nn.Module,
    sigma: Tensor,
    images: Tensor,
    normals: Tensor,
) -> Tensor:
    """What exploration does, with noise that is not clipped: (N, S * C, H, W) uint8 -> (N, A)."""
    f = perception.latent(scaled_pixels(images, *PIXEL_RANGE))
    return truncated_normal(torch.tanh(policy(f)), sigma, normals)
