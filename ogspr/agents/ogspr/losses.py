"""What an update computes beside actor and critic, as functions of networks and tensors.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    f         (N, D)                features of the encoder
    h         (N, D)                latent state, u1(f)
    z         (B, Z)                state-action representation of the value batch, g(h, a)
    z_aux     (B, Z)                the one that decoder and short-term value see: g(f, a), or z
    o         (B, C, H, W)          o_{t+1}, the frame that follows; bytes
    R         (B,)                  short-term return, the part of the value target without bootstrap
    a         (B, K, A)             actions of a sequence
    h_target  (K, B, D)             latent states of the target network, h'_{t+1} .. h'_{t+K}
    alive     (B, K + 1)            1 while no earlier step of the sequence was terminal
Equation numbers are the paper's. A prime, here a trailing `_target`, marks the target network.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ogspr.agents.ogspr.config import PIXEL_RANGE
from ogspr.agents.ogspr.heads import TwoHotHead
from ogspr.agents.ogspr.networks import Core
from ogspr.agents.ogspr.noise import UpdateNoise
from ogspr.agents.ogspr.step import Evidence
from ogspr.ops.shift import scaled_pixels, shifted_stacks
from ogspr.ops.two_hot import two_hot_cross_entropy
from ogspr.ops.values import squared_error
from ogspr.types import Window


def next_frame(value: Window, noise: UpdateNoise, pad: int) -> Tensor:
    """o_{t+1}, shifted like s_t: (B, C, H, W) uint8."""
    return shifted_stacks(value.frames, value.newest_frame(1), noise.now, pad)


def online_latents(
    core: Core, value: Window, sequence: Window, noise: UpdateNoise, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """f and h of s_t in the value batch, and h of s_t in the sequences (eq. 1): (B, D) each."""
    slots = torch.cat((value.stack(0), sequence.stack(0)))
    offsets = torch.cat((noise.now, noise.sequence_now))
    features = core.features_of_stacks(value.frames, slots, offsets, pad)
    batch = len(noise.now)
    h_value, h_sequence = torch.split(core.adapter1(features), [batch, len(noise.sequence_now)])
    return features[:batch], h_value, h_sequence


def represent(
    state_action: nn.Module, h: Tensor, features: Tensor | None, action: Tensor
) -> tuple[Tensor, Tensor]:
    """z and z_aux; one pass through g for both. Without `features` they are the same."""
    if features is None:
        z = state_action(h, action)
        return z, z
    z, z_aux = state_action(torch.cat((h, features)), torch.cat((action, action))).chunk(2)
    return z, z_aux


def target_latents(
    core_target: Core, value: Window, sequence: Window, noise: UpdateNoise, pad: int
) -> tuple[Tensor, Tensor]:
    """h'_{t+n} of the value batch, (B, D), and h'_{t+1} .. h'_{t+K} of the sequences, (K, B, D)."""
    steps = range(1, sequence.horizon + 1)
    slots = torch.cat([value.stack(value.horizon), *(sequence.stack(k) for k in steps)])
    offsets = torch.cat((noise.later, noise.sequence_later))
    h = core_target.adapter1(core_target.features_of_stacks(value.frames, slots, offsets, pad))
    h_value, h_sequence = torch.split(h, [len(noise.later), len(noise.sequence_later)])
    return h_value, h_sequence.view(sequence.horizon, len(noise.sequence_now), h.shape[1])


def frame_loss(head: nn.Module, seen: Evidence) -> Tensor:
    """L_rec = ||Dec(z_aux) - o_{t+1}||^2, a sum over pixels and a mean over the batch (eq. 7)."""
    # o_{t+1} exists even where the step to it was terminal.
    everywhere = torch.ones_like(seen.short_return)
    frame = scaled_pixels(seen.next_frame, *PIXEL_RANGE)
    return squared_error(head(seen.z_aux).float(), frame, everywhere, "sum")


def short_return_loss(head: nn.Module, seen: Evidence) -> Tensor:
    """L_nstep = CE(q(z_aux), TwoHot(R_t)) (eq. 6)."""
    return two_hot_cross_entropy(head(seen.z_aux), seen.short_return, cast(TwoHotHead, head).bins)


def latent_loss(head: nn.Module, state_action: nn.Module, seen: Evidence, horizon: int) -> Tensor:
    """L_self = sum_k MSE(h^_{t+k}, h'_{t+k}) with h^_{t+k+1} = u2(g(h^_{t+k}, a_{t+k})) (eq. 8, 9)."""
    h = seen.sequence_h
    losses = []
    for k in range(horizon):
        h = head(state_action(h, seen.sequence_actions[:, k]))
        # alive[k]: the state after a terminal step is still seen, those beyond it are not.
        losses.append(squared_error(h, seen.sequence_targets[k], seen.sequence_alive[:, k], "mean"))
    return torch.stack(losses).sum()
