"""All random numbers of one update, drawn together: two kernels instead of half a dozen."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ogspr.ops.shift import shift_offsets


class UpdateNoise(NamedTuple):
    """What one update leaves to chance (B windows, A numbers an action)."""

    places: Tensor  # (B,) float64 in [0, 1): which windows
    now: Tensor  # (B, 2) shift of s_t
    later: Tensor  # (B, 2) shift of s_{t+n}
    target_action: Tensor  # (B, A) standard normal
    policy_action: Tensor  # (B, A) standard normal


def draw_noise(batch: int, action_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Raw numbers on the generator's device: uniform (5, B) in float64, standard normal (2, B, A)."""
    device = generator.device
    uniforms = torch.rand(5, batch, generator=generator, device=device, dtype=torch.float64)
    return uniforms, torch.randn(2, batch, action_size, generator=generator, device=device)


def arrange_noise(uniforms: Tensor, normals: Tensor, pad: int) -> UpdateNoise:
    """Raw numbers as the noise of one update."""
    offsets = shift_offsets(uniforms[1:].view(2, 2, -1), pad)  # when, down or right, window
    return UpdateNoise(uniforms[0], offsets[0].T, offsets[1].T, normals[0], normals[1])
