"""All random numbers of one update, drawn together: a kernel or two instead of a dozen."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ogspr.ops.shift import shift_offsets


class EncoderNoise(NamedTuple):
    """What an update of the encoder leaves to chance (B sequences of K steps)."""

    places: Tensor  # (B,) float64 in [0, 1): which sequences
    now: Tensor  # (B, 2) shift of s_t
    later: Tensor  # (K * B, 2) shifts of s_{t+1}, then of s_{t+2}, ...


class ValueNoise(NamedTuple):
    """What an update of values and policy leaves to chance (B windows, A numbers an action)."""

    places: Tensor  # (B,) float64 in [0, 1): which windows
    now: Tensor  # (B, 2) shift of s_t
    later: Tensor  # (B, 2) shift of s_{t+n}
    target_action: Tensor  # (B, A) standard normal
    target_gumbel: Tensor  # (B, A) in [0, 1)
    policy_gumbel: Tensor  # (B, A) in [0, 1)


def draw_uniforms(count: int, generator: torch.Generator) -> Tensor:
    """Numbers in [0, 1), in float64, on the generator's device."""
    return torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)


def encoder_uniforms(batch: int, horizon: int) -> int:
    """How many numbers `arrange_encoder_noise` takes."""
    return batch * (1 + 2 + 2 * horizon)


def arrange_encoder_noise(uniforms: Tensor, batch: int, pad: int) -> EncoderNoise:
    """Raw numbers as the noise of an update of the encoder."""
    places, shifts = uniforms[:batch], shift_offsets(uniforms[batch:].view(-1, 2), pad)
    return EncoderNoise(places, shifts[:batch], shifts[batch:])


def value_uniforms(batch: int, action_size: int) -> int:
    """How many numbers `arrange_value_noise` takes."""
    return batch * (1 + 2 + 2 + 2 * action_size)


def arrange_value_noise(uniforms: Tensor, normals: Tensor, pad: int) -> ValueNoise:
    """Raw numbers, the normal ones (B, A), as the noise of an update of values and policy."""
    batch = len(normals)
    places, shifts, gumbels = torch.split(uniforms, [batch, 4 * batch, 2 * normals.numel()])
    now, later = shift_offsets(shifts.view(2, batch, 2), pad)
    target_gumbel, policy_gumbel = gumbels.float().view(2, *normals.shape)
    return ValueNoise(places, now, later, normals, target_gumbel, policy_gumbel)
