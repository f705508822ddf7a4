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


class NoiseSizes(NamedTuple):
    """How much of it: B windows a batch, sequences of K steps (0: no sequences), A numbers an action."""

    batch: int
    horizon: int
    action_size: int

    @property
    def sequences(self) -> int:
        return self.batch if self.horizon else 0

    @property
    def uniforms(self) -> tuple[int, ...]:
        """Numbers in [0, 1) for each field that is made of them, in the order of the fields."""
        shifts = (self.batch, self.batch, self.sequences, self.horizon * self.batch)
        gumbels = (self.batch * self.action_size,) * 2
        return (self.batch, self.sequences, *(2 * count for count in shifts), *gumbels)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Raw numbers on the generator's device: uniform (float64) and standard normal."""
        uniforms = torch.rand(
            sum(self.uniforms), generator=generator, device=generator.device, dtype=torch.float64
        )
        normals = torch.randn(self.batch, self.action_size, generator=generator, device=generator.device)
        return uniforms, normals


def arrange_noise(uniforms: Tensor, normals: Tensor, sizes: NoiseSizes, pad: int) -> UpdateNoise:
    """Raw numbers as the noise of one update."""
    parts = torch.split(uniforms, list(sizes.uniforms))
    now, later, sequence_now, sequence_later = (shift_offsets(part.view(-1, 2), pad) for part in parts[2:6])
    target_gumbel, policy_gumbel = (part.float().view(sizes.batch, sizes.action_size) for part in parts[6:])
    return UpdateNoise(
        value_places=parts[0],
        sequence_places=parts[1],
        now=now,
        later=later,
        sequence_now=sequence_now,
        sequence_later=sequence_later,
        target_action=normals,
        target_gumbel=target_gumbel,
        policy_gumbel=policy_gumbel,
    )
