"""What teaches the encoder, as functions of networks and tensors.

    symbol    shape                 meaning
    s         (N, S * C, H, W)      observation: the last S frames, scaled
    h         (B, D)                latent state, f(s)
    a         (B, K, A)             actions of a sequence
    z         (B, Z)                state-action representation, g(h, a)
    m(z)                            the model's next latent state, reward and terminal, linear in z
    h_target  (K * B, D)            latent states of the target network, f'(s_{t+1}), then f'(s_{t+2}), ...
    r         (B, K)                rewards
    alive     (B, K + 1)            1 while no earlier step of the sequence was terminal
Values and policy are those of `agents.actor_critic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.mrq.networks import Perception, Prediction, WorldModel
from ogspr.ops.values import squared_error, two_hot
from ogspr.types import Window


class Augmentation(NamedTuple):
    """How stored images become inputs."""

    pad: int  # largest shift
    pixel_range: tuple[float, float]


class EncoderNoise(NamedTuple):
    """What an update of the encoder leaves to chance (B sequences of K steps)."""

    now: Any  # (B, 2) shift of s_t
    later: Any  # (K * B, 2) shifts of s_{t+1}, then of s_{t+2}, ...


class ValueNoise(NamedTuple):
    """What an update of values and policy leaves to chance (B windows, A numbers an action)."""

    now: Any  # (B, 2) shift of s_t
    later: Any  # (B, 2) shift of s_{t+n}
    target_action: Any  # (B, A) standard normal
    target_gumbel: Any  # (B, A) in [0, 1)
    policy_gumbel: Any  # (B, A) in [0, 1)


def latents(
    core: Perception, window: Window, steps: Sequence[int], offsets: Tensor, augmentation: Augmentation
) -> Tensor:
    """h of s_{t+k} for each k of `steps`, one after the other: (len(steps) * B, D)."""
    slots = torch.cat([window.stack(k) for k in steps])
    return core.latent_of_stacks(window.frames, slots, offsets, *augmentation)


def unrolled(state_action: nn.Module, model: WorldModel, h: Tensor, actions: Tensor) -> Prediction:
    """What the model says of each step when it is told the actions alone: fields are (K * B, ...).

    h_{k+1}, r_k, d_k = m(g(h_k, a_k)), from the one h that was seen.
    """
    predictions = []
    for action in actions.unbind(1):
        predicted = model(state_action(h, action))
        predictions.append(predicted)
        h = predicted.h
    return Prediction(*(torch.cat(field) for field in zip(*predictions, strict=True)))


def model_losses(
    predicted: Prediction, h_target: Tensor, rewards: Tensor, alive: Tensor, bins: Tensor
) -> dict[str, Tensor]:
    """L_dynamics, L_reward and L_done: each a mean over the batch, added over the steps.

    The step that ends an episode still counts, those beyond it do not.
    """
    steps = rewards.shape[1]
    counts = alive[:, :-1].T.flatten()
    terminal = (alive[:, :-1] - alive[:, 1:]).T.reshape(-1, 1)
    codes = two_hot(rewards.T.flatten(), bins)
    surprise = F.cross_entropy(predicted.reward, codes, reduction="none")
    return {
        "dynamics": steps * squared_error(predicted.h, h_target, counts, "mean"),
        "reward": steps * (surprise * counts).mean(),
        "done": steps * squared_error(predicted.done, terminal, counts, "mean"),
    }


def terminal_seen(before: Tensor, alive: Tensor) -> Tensor:
    """1 once a sequence has had a terminal step, else 0; 0-d."""
    return torch.maximum(before, 1.0 - alive.amin())
