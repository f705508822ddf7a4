"""DrQ-v2 once more, in float64 numpy with gradients by hand. Imports nothing of the package.

A network is a dictionary of arrays: `conv0` .. `conv3`, `trunk`, `norm`, `q0.0` .. `q1.2`, `pi.0` .. `pi.2`,
each with `.weight` and `.bias`. A layer gives its output and a function that turns the slope by its output
into that by its input, noting those by its weights on the way.
"""

from dataclasses import dataclass

import numpy as np

from tests.agents.reference import n_step_return, pictures

STRIDES = (2, 1, 1, 1)

# --- layers -----------------------------------------------------------------------------------------


def convolution(net, name, x, stride, slopes):
    weight, bias = net[f"{name}.weight"], net[f"{name}.bias"]
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    out = np.einsum("nchwij,ocij->nohw", patches, weight, optimize=True) + bias[:, None, None]

    def back(slope):
        slopes[f"{name}.weight"] = np.einsum("nohw,nchwij->ocij", slope, patches, optimize=True)
        slopes[f"{name}.bias"] = slope.sum((0, 2, 3))
        before = np.zeros_like(x)
        height, width = slope.shape[2:]
        for i in range(3):
            for j in range(3):
                rows, columns = slice(i, i + stride * height, stride), slice(j, j + stride * width, stride)
                before[:, :, rows, columns] += np.einsum("nohw,oc->nchw", slope, weight[:, :, i, j])
        return before

    return out, back


def linear(net, name, x, slopes):
    weight = net[f"{name}.weight"]

    def back(slope):
        slopes[f"{name}.weight"], slopes[f"{name}.bias"] = slope.T @ x, slope.sum(0)
        return slope @ weight

    return x @ weight.T + net[f"{name}.bias"], back


def layer_norm(net, name, x, slopes):
    weight, centred = net[f"{name}.weight"], x - x.mean(1, keepdims=True)
    size = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    unit = centred / size

    def back(slope):
        slopes[f"{name}.weight"], slopes[f"{name}.bias"] = (slope * unit).sum(0), slope.sum(0)
        by_unit = slope * weight
        mean, along = by_unit.mean(1, keepdims=True), (by_unit * unit).mean(1, keepdims=True)
        return (by_unit - mean - unit * along) / size

    return unit * weight + net[f"{name}.bias"], back


def relu(x):
    return np.maximum(x, 0), lambda slope: slope * (x > 0)


def tanh(x):
    out = np.tanh(x)
    return out, lambda slope: slope * (1 - out**2)


# --- networks ---------------------------------------------------------------------------------------


def backwards(steps):
    def back(slope):
        for step in reversed(steps):
            slope = step(slope)
        return slope

    return back


def encoder(net, images, slopes):
    x, steps = images, []
    for i, stride in enumerate(STRIDES):
        x, step = convolution(net, f"conv{i}", x, stride, slopes)
        steps.append(step)
        x, step = relu(x)
        steps.append(step)
    shape = x.shape
    return x.reshape(len(x), -1), backwards([*steps, lambda slope: slope.reshape(shape)])


def trunk(net, features, slopes):
    x, back_linear = linear(net, "trunk", features, slopes)
    x, back_norm = layer_norm(net, "norm", x, slopes)
    x, back_tanh = tanh(x)
    return x, backwards([back_linear, back_norm, back_tanh])


def mlp(net, name, x, slopes):
    steps = []
    for i in range(3):
        x, step = linear(net, f"{name}.{i}", x, slopes)
        steps.append(step)
        if i < 2:
            x, step = relu(x)
            steps.append(step)
    return x, backwards(steps)


def policy_mean(policy, features, slopes):
    h, back_trunk = trunk(policy, features, slopes)
    pre, back_mlp = mlp(policy, "pi", h, slopes)
    mean, back_tanh = tanh(pre)
    return mean, backwards([back_trunk, back_mlp, back_tanh])


def values(critic, h, action, slopes):
    """[Q1, Q2] and for each the function from its slope to that by [h, a]."""
    found = [mlp(critic, f"q{j}", np.concatenate((h, action), 1), slopes) for j in range(2)]
    return [q[:, 0] for q, _ in found], [back for _, back in found]


# --- one update -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    n_step: int = 3
    discount: float = 0.99
    limit: float = 0.3
    pad: int = 4
    pixel_range: tuple = (-0.5, 0.5)
    target_rate: float = 0.01


@dataclass(frozen=True)
class Chance:
    """What the update drew."""

    now: np.ndarray  # (B, 2)
    later: np.ndarray  # (B, 2)
    target_normals: np.ndarray  # (B, A)
    policy_normals: np.ndarray  # (B, A)


@dataclass(frozen=True)
class Found:
    """What an update should find."""

    y: np.ndarray
    losses: dict  # value and policy
    slopes: dict  # by network, then by name


def noise_scale(start, end, duration, agent_steps):
    return float(np.interp(agent_steps, [0, duration], [start, end]))


def noisy(mean, sigma, normals, settings):
    noise = np.clip(sigma * normals, -settings.limit, settings.limit)
    return np.clip(mean + noise, -1 + 1e-6, 1 - 1e-6)


def target(value, policy, target_critic, window, chance, sigma, settings):
    """y: rewards up to a terminal, then the smaller value of what the policy would do."""
    images = pictures(window.frames, window.stack(settings.n_step), chance.later, settings)
    features, _ = encoder(value, images, {})
    mean, _ = policy_mean(policy, features, {})
    action = noisy(mean, sigma, chance.target_normals, settings)
    h, _ = trunk(target_critic, features, {})
    pair, _ = values(target_critic, h, action, {})
    y = []
    for rewards, terminated, q in zip(window.rewards, window.terminated, np.minimum(*pair), strict=True):
        total, goes_on = n_step_return(rewards, terminated, settings.discount)
        y.append(total + (settings.discount**settings.n_step * q if goes_on else 0.0))
    return np.array(y)


def update(value, policy, target_critic, window, chance, sigma, settings):
    """Target, losses and slopes of one update. `value` has encoder and critic."""
    y = target(value, policy, target_critic, window, chance, sigma, settings)
    batch = len(y)

    value_slopes = {}
    images = pictures(window.frames, window.stack(0), chance.now, settings)
    features, back_encoder = encoder(value, images, value_slopes)
    h, back_trunk = trunk(value, features, value_slopes)
    pair, backs = values(value, h, window.actions[:, 0], value_slopes)
    value_loss = sum(((q - y) ** 2).mean() for q in pair)
    by_h = sum(back(2 * (q - y)[:, None] / batch) for q, back in zip(pair, backs, strict=True))
    back_encoder(back_trunk(by_h[:, : h.shape[1]]))

    policy_slopes = {}
    mean, back_policy = policy_mean(policy, features, policy_slopes)
    action = noisy(mean, sigma, chance.policy_normals, settings)
    pair, backs = values(value, h, action, {})  # the values take no slope of this loss
    smaller = np.argmin(pair, 0)
    by_action = sum(
        back(np.where(smaller == j, -1.0 / batch, 0.0)[:, None])[:, h.shape[1] :]
        for j, back in enumerate(backs)
    )
    back_policy(by_action)  # through the clip as if it were not there; the features take no slope
    losses = {"value": value_loss, "policy": -np.minimum(*pair).mean()}
    return Found(y, losses, {"value_network": value_slopes, "policy": policy_slopes})


def moved_target(target_critic, value, rate):
    return {name: (1 - rate) * array + rate * value[name] for name, array in target_critic.items()}
