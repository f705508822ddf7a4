"""What an update computes beside actor and critic, as functions of networks and tensors.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    h         (N, D)                latent state, u1(f(s))
Equation numbers are the paper's. A prime, here a trailing `_target`, marks the target network.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ogspr.agents.ogspr.networks import Core
from ogspr.agents.ogspr.noise import UpdateNoise
from ogspr.ops.shift import shifted_stacks
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
