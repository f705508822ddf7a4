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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.mrq.networks import Perception, Prediction, WorldModel
from ogspr.ops.two_hot import two_hot
from ogspr.ops.values import squared_error
from ogspr.types import Window

Look = tuple[int, tuple[float, float]]  # largest shift, range of scaled pixels


def latents(core: Perception, window: Window, steps: Sequence[int], offsets: Tensor, look: Look) -> Tensor:
    """h of s_{t+k} for each k of `steps`, one after the other: (len(steps) * B, D)."""
    slots = torch.cat([window.stack(k) for k in steps])
    return core.latent_of_stacks(window.frames, slots, offsets, *look)


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
