"""All random numbers of one update, drawn together: two kernels instead of a dozen."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ogspr.ops.shift import shift_offsets


class UpdateNoise(NamedTuple):
    """What one update leaves to chance (B windows a batch, K steps a sequence, A numbers an action)."""

    value_places: Tensor  # (B,) float64 in [0, 1): which value windows
    sequence_places: Tensor  # (B,) which sequences
    now: Tensor  # (B, 2) shift of s_t, and of o_{t+1}, in the value batch
    later: Tensor  # (B, 2) shift of s_{t+n}
    sequence_now: Tensor  # (B, 2) shift of s_t in the sequences
    sequence_later: Tensor  # (K * B, 2) shifts of s_{t+1}, then of s_{t+2}, ...
    target_action: Tensor  # (B, A) standard normal
    target_gumbel: Tensor  # (B, A) in [0, 1)
    policy_gumbel: Tensor  # (B, A) in [0, 1)


def draw_update_noise(
    batch: int, horizon: int, action_size: int, pad: int, generator: torch.Generator
) -> UpdateNoise:
    """Fresh noise from `generator`, on its device; a horizon of 0 means that there are no sequences."""
    sequences = batch if horizon else 0
    shifts = (2 * batch, 2 * batch, 2 * sequences, 2 * horizon * batch)
    sizes = (batch, sequences, *shifts, batch * action_size, batch * action_size)
    device = generator.device
    uniforms = torch.rand(sum(sizes), generator=generator, device=device, dtype=torch.float64)
    normals = torch.randn(batch, action_size, generator=generator, device=device)
    value_places, sequence_places, *rest = uniforms.split(sizes)
    now, later, sequence_now, sequence_later = (shift_offsets(part.view(-1, 2), pad) for part in rest[:4])
    target_gumbel, policy_gumbel = (part.float().view(batch, action_size) for part in rest[4:])
    return UpdateNoise(
        value_places,
        sequence_places,
        now,
        later,
        sequence_now,
        sequence_later,
        normals,
        target_gumbel,
        policy_gumbel,
    )
