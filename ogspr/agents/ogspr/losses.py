"""What an update computes besides actor and critic, as functions of networks and tensors.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    f         (N, D)                features of the encoder
    h         (N, D)                latent state, u1(f)
    z         (B, Z)                state-action representation of the value batch, g(h, a)
    z_aux     (B, Z)                what decoder and short-term value see: g(f, a), or z
    o         (B, C, H, W)          o_{t+1}, the frame that follows; bytes
    R         (B,)                  short-term return, the part of the value target without bootstrap
    a         (B, K, A)             actions of a sequence
    h_target  (K, B, D)             latent states of the target network, h'_{t+1} .. h'_{t+K}
    alive     (B, K + 1)            1 while no earlier step of the sequence was terminal
Equation numbers are the paper's. A prime, here a trailing `_target`, marks the target network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ogspr.agents.ogspr.config import (
    PIXEL_RANGE,
    AuxiliaryTask,
    ObservationPrediction,
    SelfPrediction,
    ShortTermValue,
)
from ogspr.agents.ogspr.networks import Core, TwoHotHead
from ogspr.ops.images import scaled_pixels, shifted_stacks
from ogspr.ops.values import squared_error, two_hot_cross_entropy
from ogspr.types import Window


class UpdateNoise(NamedTuple):
    """What one update leaves to chance (B windows a batch, K steps a sequence, A numbers an action)."""

    now: Any  # (B, 2) shift of s_t, and of o_{t+1}, in the value batch
    later: Any  # (B, 2) shift of s_{t+n}
    sequence_now: Any  # (B, 2) shift of s_t in the sequences
    sequence_later: Any  # (K * B, 2) shifts of s_{t+1}, then of s_{t+2}, ...
    target_action: Any  # (B, A) standard normal
    target_gumbel: Any  # (B, A) in [0, 1)
    policy_gumbel: Any  # (B, A) in [0, 1)


class Latents(NamedTuple):
    """What has been computed by the time the auxiliary losses are taken."""

    z: Tensor  # (B, Z), what the values see
    z_aux: Tensor  # (B, Z), what decoder and short-term value see
    next_frame: Tensor  # o_{t+1}: (B, C, H, W), bytes
    short_return: Tensor  # R: (B,)
    sequence_h: Tensor  # (B, D), where each sequence starts
    sequence_actions: Tensor  # (B, K, A)
    sequence_targets: Tensor  # h'_{t+1} .. h'_{t+K} of the target network: (K, B, D)
    sequence_alive: Tensor  # (B, K + 1)


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


# --- the auxiliary losses: functions of a task's head, of g, and of what has been computed ------------------


def frame_loss(head: nn.Module, _state_action: nn.Module, seen: Latents) -> Tensor:
    """L_rec = ||Dec(z_aux) - o_{t+1}||^2, a sum over pixels and a mean over the batch (eq. 7)."""
    # o_{t+1} exists even where the step to it was terminal.
    everywhere = torch.ones_like(seen.short_return)
    frame = scaled_pixels(seen.next_frame, *PIXEL_RANGE)
    return squared_error(head(seen.z_aux).float(), frame, everywhere, "sum")


def short_return_loss(head: nn.Module, _state_action: nn.Module, seen: Latents) -> Tensor:
    """L_nstep = CE(q(z_aux), TwoHot(R_t)) (eq. 6)."""
    return two_hot_cross_entropy(head(seen.z_aux), seen.short_return, cast(TwoHotHead, head).bins)


def latent_loss(head: nn.Module, state_action: nn.Module, seen: Latents) -> Tensor:
    """L_self = sum_k MSE(h^_{t+k}, h'_{t+k}) with h^_{t+k+1} = u2(g(h^_{t+k}, a_{t+k})) (eq. 8, 9)."""
    h = seen.sequence_h
    losses = []
    for k in range(seen.sequence_actions.shape[1]):
        h = head(state_action(h, seen.sequence_actions[:, k]))
        # alive[k]: the state after a terminal step still counts, those beyond it do not.
        losses.append(squared_error(h, seen.sequence_targets[k], seen.sequence_alive[:, k], "mean"))
    return torch.stack(losses).sum()


TASK_LOSSES: dict[type[AuxiliaryTask], Callable[[nn.Module, nn.Module, Latents], Tensor]] = {
    ObservationPrediction: frame_loss,
    ShortTermValue: short_return_loss,
    SelfPrediction: latent_loss,
}
