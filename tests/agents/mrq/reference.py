"""MR.Q once more, in float64 numpy, written from its description. Imports nothing of the package.

Layers, pictures, actions and returns are those of the other reference; what is MR.Q's own is here.
"""

from dataclasses import dataclass

import numpy as np

from tests.agents.reference import (
    action_of,
    elu,
    encoder,
    huber,
    lap_priority,
    linear,
    long_term_values,
    mlp,
    n_step_return,
    pictures,
    pre_activation,
    smoothed_action,
    softmax,
    symexp_bins,
    two_hot,
)


@dataclass(frozen=True)
class Settings:
    """The numbers of the paper's table."""

    discrete: bool = False
    horizon: int = 5
    dynamics_weight: float = 1.0
    reward_weight: float = 0.1
    done_weight: float = 0.1
    n_step: int = 3
    discount: float = 0.99
    target_noise: float = 0.2
    target_noise_limit: float = 0.3
    priority_exponent: float = 0.4
    minimum_priority: float = 1.0
    temperature: float = 10.0
    pre_activation_weight: float = 1e-5
    pad: int = 4
    pixel_range: tuple = (-0.5, 0.5)
    discrete_noise_scale: float = 0.5
    scales: tuple = (1.0, 1.0)  # units of the values that learn, and of those that bootstrap
    terminal_seen: bool = True


@dataclass(frozen=True)
class Networks:
    """Layers; those of cores by part: encoder, embedding, state_action, long_term."""

    core: dict
    model: list
    policy: list
    target_core: dict
    target_policy: list


@dataclass(frozen=True)
class EncoderChance:
    now: np.ndarray  # (B, 2)
    later: np.ndarray  # (K, B, 2)


@dataclass(frozen=True)
class ValueChance:
    now: np.ndarray  # (B, 2)
    later: np.ndarray  # (B, 2)
    normals: np.ndarray  # (B, A)
    target_uniforms: np.ndarray  # (B, A)
    policy_uniforms: np.ndarray  # (B, A)


def state_action(core, h, action):
    (embedding,) = core["embedding"]
    assert len(core["state_action"]) == 3
    return mlp(np.concatenate((h, elu(linear(action, *embedding))), 1), core["state_action"], elu)


def latent_targets(nets, sequence, chance, settings):
    """f'(s_{t+1}) .. f'(s_{t+K})."""
    return [
        encoder(
            nets.target_core["encoder"],
            pictures(sequence.frames, sequence.stack(k), chance.later[k - 1], settings),
        )
        for k in range(1, settings.horizon + 1)
    ]


def encoder_losses(nets, sequence, chance, targets, settings):
    """Every loss by name, and their weighted sum."""
    bins = symexp_bins()
    h = encoder(nets.core["encoder"], pictures(sequence.frames, sequence.stack(0), chance.now, settings))
    size, batch = h.shape[1], len(h)
    found = dict.fromkeys(("dynamics", "reward", "done"), 0.0)
    (model,) = nets.model
    for k in range(settings.horizon):
        out = linear(state_action(nets.core, h, sequence.actions[:, k]), *model)
        h, logits, done = out[:, :size], out[:, size : size + 65], out[:, size + 65]
        for i in range(batch):
            if sequence.terminated[i, :k].any():
                continue  # over before this step
            found["dynamics"] += ((h[i] - targets[k][i]) ** 2).mean() / batch
            code = two_hot(sequence.rewards[i, k], bins)
            found["reward"] -= (code * np.log(softmax(logits[i]))).sum() / batch
            found["done"] += (done[i] - float(sequence.terminated[i, k])) ** 2 / batch
    done_weight = settings.done_weight if settings.terminal_seen else 0.0
    found["encoder"] = (
        settings.dynamics_weight * found["dynamics"]
        + settings.reward_weight * found["reward"]
        + done_weight * found["done"]
    )
    return found


def value_targets(nets, value, chance, settings):
    """Short-term returns, and y in units of the values that learn."""
    images = pictures(value.frames, value.stack(settings.n_step), chance.later, settings)
    h = encoder(nets.target_core["encoder"], images)
    action = action_of(pre_activation(nets.target_policy, h), chance.target_uniforms, settings)
    action = smoothed_action(action, chance.normals, settings)
    bootstrap = long_term_values(nets.target_core, state_action(nets.target_core, h, action)).min(0)
    scale, next_scale = settings.scales
    returns, y = [], []
    for rewards, terminated, q in zip(value.rewards, value.terminated, bootstrap, strict=True):
        total, goes_on = n_step_return(rewards, terminated, settings.discount)
        returns.append(total)
        y.append((total + (settings.discount**settings.n_step * q * next_scale if goes_on else 0.0)) / scale)
    return np.array(returns), np.array(y)


def value_losses(nets, value, chance, y, settings):
    """Both losses by name, and the new priorities."""
    h = encoder(nets.core["encoder"], pictures(value.frames, value.stack(0), chance.now, settings))
    values = long_term_values(nets.core, state_action(nets.core, h, value.actions[:, 0]))
    pre = pre_activation(nets.policy, h)
    action = action_of(pre, chance.policy_uniforms, settings)
    chosen = long_term_values(nets.core, state_action(nets.core, h, action))
    return {
        "value": (huber(values[0], y) + huber(values[1], y)) / 2,
        "policy": -chosen.sum(0).mean() / 2 + settings.pre_activation_weight * (pre**2).mean(),
    }, lap_priority(values, y, settings)
