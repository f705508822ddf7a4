"""OG-SPR once more, in float64 numpy, written from its specification. Imports nothing of the package.

Slow and plain on purpose: loops where a loop says it best, `np.pad` for the random shift, no masks where an
`if` does. A network is a list of layers, each a pair (weight, bias); all randomness comes as arrays.
"""

from dataclasses import dataclass, field

import numpy as np

# --- layers -----------------------------------------------------------------------------------------


def convolution(x, weight, bias, stride):
    """(N, C, H, W) * (O, C, k, k) -> (N, O, H', W'), no padding."""
    k = weight.shape[-1]
    patches = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    out = np.tensordot(patches, weight, axes=((1, 4, 5), (1, 2, 3)))  # (N, H', W', O)
    return np.moveaxis(out, -1, 1) + bias[:, None, None]


def transposed_convolution(x, weight, bias, stride):
    """(N, C, H, W), (C, O, k, k): every pixel paints a patch, `stride` apart; no padding."""
    n, _, height, width = x.shape
    k = weight.shape[-1]
    rows = (height - 1) * stride + k
    columns = (width - 1) * stride + k
    canvas = np.zeros((n, weight.shape[1], rows, columns))
    for i in range(k):
        for j in range(k):
            paint = np.moveaxis(np.tensordot(x, weight[:, :, i, j], axes=(1, 0)), -1, 1)
            canvas[:, :, i : i + height * stride : stride, j : j + width * stride : stride] += paint
    return canvas + bias[:, None, None]


def linear(x, weight, bias):
    return x @ weight.T + bias


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp(x, layers, activation):
    """LayerNorm and the activation after all but the last of [(weight, bias), ...]."""
    for weight, bias in layers[:-1]:
        x = activation(layer_norm(linear(x, weight, bias)))
    return linear(x, *layers[-1])


# --- networks ---------------------------------------------------------------------------------------


def encoder(layers, images):
    """f: four convolutions of 3x3, strides 2, 2, 2, 1, ELU; linear, LayerNorm, ELU."""
    x = images
    for (weight, bias), stride in zip(layers[:4], (2, 2, 2, 1), strict=True):
        x = elu(convolution(x, weight, bias, stride))
    (head,) = layers[4:]
    return elu(layer_norm(linear(x.reshape(len(x), -1), *head)))


def adapter(layers, x):
    """u1 or u2: one linear layer; where a variant has none, the identity."""
    return linear(x, *layers[0]) if layers else x


def latent(core, images):
    """h = u1(f(s)) (eq. 1)."""
    return adapter(core["adapter1"], encoder(core["encoder"], images))


def state_action(core, h, action):
    """z = g([h, a]) (eq. 1)."""
    assert len(core["state_action"]) == 3
    return mlp(np.concatenate((h, action), 1), core["state_action"], elu)


def long_term_values(core, z):
    """Q1, Q2: (2, B). A layer of the pair is saved as one array, (2, in, out)."""
    assert len(core["long_term"]) == 4
    pair = ([(weight[j].T, bias[j, 0]) for weight, bias in core["long_term"]] for j in range(2))
    return np.stack([mlp(z, layers, elu)[:, 0] for layers in pair])


def pre_activation(policy, h):
    """The policy's outputs before tanh or Gumbel-Softmax."""
    assert len(policy) == 3
    return mlp(h, policy, relu)


def short_term_logits(layers, z):
    assert len(layers) == 2
    return mlp(z, layers, elu)


def spectrally_normalised(weight, v):
    """weight / sigma after one power iteration from `v`: u <- Wv, v <- W'u, sigma = u'Wv."""
    u = weight @ v
    u = u / np.linalg.norm(u)
    v = weight.T @ u
    v = v / np.linalg.norm(v)
    return weight / (u @ weight @ v)


def decoder(layers, v, z):
    """Dec: linear with spectral normalisation, then four transposed convolutions, ReLU between them.

    From one pixel to 84 over 7, 18 and 40; to 36 over 1, 6 and 16.
    """
    (weight, bias), first, *later = layers
    x = linear(z, spectrally_normalised(weight, v), bias)[:, :, None, None]
    x = transposed_convolution(x, *first, stride=2)
    for layer in later:
        x = transposed_convolution(relu(x), *layer, stride=2)
    return x


# --- pictures, actions ------------------------------------------------------------------------------


def random_shift(image, offset, pad):
    """Repeats the border `pad` times, then cuts out a picture of the old size at `offset` (down, right)."""
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode="edge")
    down, right = offset
    return padded[:, down : down + height, right : right + width]


def pictures(frames, rows, offsets, settings):
    """Stacks of frames, shifted and scaled: (slots, C, H, W), (N, S), (N, 2) -> (N, S * C, H, W)."""
    low, high = -0.5, 0.5
    stacks = [np.concatenate([frames[slot] for slot in stack]) for stack in rows]
    shifted = [random_shift(s, offset, settings.pad) for s, offset in zip(stacks, offsets, strict=True)]
    return low + (high - low) * np.stack(shifted).astype(np.float64) / 255.0


def action_of(pre, uniforms, settings):
    """tanh, or Gumbel-Softmax."""
    if not settings.discrete:
        return np.tanh(pre)
    return softmax((pre - np.log(-np.log(uniforms))) / settings.temperature)


def smoothed_action(action, normals, settings):
    """eq. 2: clipped noise, then a legal action again."""
    limit = settings.target_noise_limit
    noise = np.clip(settings.target_noise * normals, -limit, limit)
    if not settings.discrete:
        return np.clip(action + noise, -1.0, 1.0)
    return np.eye(action.shape[1])[np.argmax(action + settings.discrete_noise_scale * noise, 1)]


# --- returns and losses -----------------------------------------------------------------------------


def n_step_return(rewards, terminated, discount):
    """One window: its return, and whether the episode goes on after it."""
    total = 0.0
    for i, (reward, terminal) in enumerate(zip(rewards, terminated, strict=True)):
        total += discount**i * reward
        if terminal:
            return total, False
    return total, True


def huber(x, y):
    error = np.abs(x - y)
    return np.where(error <= 1.0, 0.5 * error**2, error - 0.5).mean()


def lap_priority(values, y, settings):
    return np.maximum(np.abs(values - y).max(0), settings.minimum_priority) ** settings.priority_exponent


def symexp_bins(count=65, limit=10.0):
    grid = np.linspace(-limit, limit, count)
    return np.sign(grid) * (np.exp(np.abs(grid)) - 1.0)


def two_hot(value, bins):
    """One number as weights of the two bins around it; beyond the bins, of the last one."""
    code = np.zeros(len(bins))
    value = min(max(value, bins[0]), bins[-1])
    below = max(i for i, place in enumerate(bins) if place <= value)
    if below == len(bins) - 1:
        code[below] = 1.0
        return code
    share = (value - bins[below]) / (bins[below + 1] - bins[below])
    code[below], code[below + 1] = 1.0 - share, share
    return code


def cross_entropy(logits, values, bins):
    log_q = np.log(softmax(logits))
    return np.mean([-(two_hot(value, bins) @ row) for value, row in zip(values, log_q, strict=True)])


def squared_errors(predicted, target):
    """One row of errors a sample."""
    return ((predicted - target) ** 2).reshape(len(predicted), -1)


# --- one update -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The numbers of the paper's table for DMControl, and of its authors' code."""

    weights: dict = field(
        default_factory=lambda: {"observation": 0.1, "short_term_value": 1.0, "self_prediction": 5.0}
    )
    discrete: bool = False
    shared_adapter: bool = False
    one_z: bool = False  # heads of auxiliary tasks see the z that values see, as the paper has it
    values_added: bool = False  # the loss is the sum of both values' and not the mean, as the paper has it
    n_step: int = 3
    horizon: int = 5
    discount: float = 0.99
    target_noise: float = 0.2
    target_noise_limit: float = 0.3
    priority_exponent: float = 0.4
    minimum_priority: float = 1.0
    temperature: float = 10.0
    pre_activation_weight: float = 1e-5
    pad: int = 4
    discrete_noise_scale: float = 1.0  # MR.Q, which borrows from here, halves it


@dataclass(frozen=True)
class Networks:
    """Layers; those of cores by part (encoder, adapter1, state_action, long_term), of heads by task."""

    core: dict
    heads: dict
    power_vector: np.ndarray | None  # v of the decoder's spectral normalisation
    policy: list
    target_core: dict
    target_policy: list


@dataclass(frozen=True)
class Windows:
    """Stretches of replay."""

    frames: np.ndarray  # (slots, C, H, W) bytes
    rows: np.ndarray  # (B, S + n) places of o_{t-S+1} .. o_{t+n}
    actions: np.ndarray  # (B, n, A)
    rewards: np.ndarray  # (B, n)
    terminated: np.ndarray  # (B, n)

    def stack(self, k):
        """The places of the frames of s_{t+k}."""
        frame_stack = self.rows.shape[1] - self.rewards.shape[1]
        return self.rows[:, k : k + frame_stack]


@dataclass(frozen=True)
class Chance:
    """What the update drew."""

    now: np.ndarray  # (B, 2) s_t and o_{t+1}
    later: np.ndarray  # (B, 2) s_{t+n}
    sequence_now: np.ndarray  # (B, 2)
    sequence_later: np.ndarray  # (K, B, 2)
    normals: np.ndarray  # (B, A)
    target_uniforms: np.ndarray  # (B, A)
    policy_uniforms: np.ndarray  # (B, A)


@dataclass(frozen=True)
class Targets:
    """What the update predicts; nothing here gets a gradient."""

    returns: np.ndarray  # R (B,)
    y: np.ndarray  # (B,)
    next_frame: np.ndarray  # o_{t+1} (B, C, H, W)
    latents: list  # h'_{t+1} .. h'_{t+K}, each (B, D)


def targets_of(nets, value, sequence, chance, settings):
    """R, y (eq. 3, 6), the next frame, and the target latents."""
    later = pictures(value.frames, value.stack(settings.n_step), chance.later, settings)
    h_later = latent(nets.target_core, later)
    action = action_of(pre_activation(nets.target_policy, h_later), chance.target_uniforms, settings)
    action = smoothed_action(action, chance.normals, settings)
    bootstrap = long_term_values(nets.target_core, state_action(nets.target_core, h_later, action)).min(0)
    returns, y = [], []
    for rewards, terminated, q in zip(value.rewards, value.terminated, bootstrap, strict=True):
        total, goes_on = n_step_return(rewards, terminated, settings.discount)
        returns.append(total)
        y.append(total + (settings.discount**settings.n_step * q if goes_on else 0.0))
    return Targets(
        np.array(returns),
        np.array(y),
        pictures(value.frames, value.stack(1)[:, -1:], chance.now, settings),
        target_latents(nets, sequence, chance, settings),
    )


def target_latents(nets, sequence, chance, settings):
    """h'_{t+1} .. h'_{t+K}, every state shifted on its own."""
    if "self_prediction" not in settings.weights:
        return []
    return [
        latent(
            nets.target_core,
            pictures(sequence.frames, sequence.stack(k), chance.sequence_later[k - 1], settings),
        )
        for k in range(1, settings.horizon + 1)
    ]


def self_prediction_loss(nets, h, sequence, targets, settings):
    """eq. 8, 9; the steps after a terminal one do not count."""
    adapter2 = nets.core["adapter1"] if settings.shared_adapter else nets.heads["self_prediction"]
    total = 0.0
    for k in range(settings.horizon):
        h = adapter(adapter2, state_action(nets.core, h, sequence.actions[:, k]))
        errors = squared_errors(h, targets[k]).mean(1)
        over = [any(flags[:k]) for flags in sequence.terminated]
        total += sum(0.0 if done else e for done, e in zip(over, errors, strict=True)) / len(errors)
    return total


def policy_loss(nets, h, uniforms, settings):
    """eq. 5, at a fixed h."""
    pre = pre_activation(nets.policy, h)
    z = state_action(nets.core, h, action_of(pre, uniforms, settings))
    return (
        -long_term_values(nets.core, z).sum(0).mean() / 2 + settings.pre_activation_weight * (pre**2).mean()
    )


def losses(nets, value, sequence, chance, targets, settings):
    """Every loss by name, the combined one (eq. 10), and the new priorities."""
    features = encoder(nets.core["encoder"], pictures(value.frames, value.stack(0), chance.now, settings))
    h = adapter(nets.core["adapter1"], features)
    z = state_action(nets.core, h, value.actions[:, 0])
    z_of_features = z if settings.one_z else state_action(nets.core, features, value.actions[:, 0])
    values = long_term_values(nets.core, z)
    both = huber(values[0], targets.y) + huber(values[1], targets.y)
    found = {"value": both if settings.values_added else both / 2}
    if "observation" in settings.weights:
        predicted = decoder(nets.heads["observation"], nets.power_vector, z_of_features)
        found["observation"] = squared_errors(predicted, targets.next_frame).sum(1).mean()
    if "short_term_value" in settings.weights:
        logits = short_term_logits(nets.heads["short_term_value"], z_of_features)
        found["short_term_value"] = cross_entropy(logits, targets.returns, symexp_bins())
    if "self_prediction" in settings.weights:
        images = pictures(sequence.frames, sequence.stack(0), chance.sequence_now, settings)
        found["self_prediction"] = self_prediction_loss(
            nets, latent(nets.core, images), sequence, targets.latents, settings
        )
    combined = found["value"] + sum(weight * found[name] for name, weight in settings.weights.items())
    found["policy"] = policy_loss(nets, h, chance.policy_uniforms, settings)
    return found | {"combined": combined}, lap_priority(values, targets.y, settings)


# --- AdamW ------------------------------------------------------------------------------------------


def global_norm(gradients):
    return np.sqrt(sum((g**2).sum() for g in gradients.values()))


def clipped(gradients, limit):
    """All gradients scaled alike so that their norm together is at most `limit`."""
    factor = min(1.0, limit / global_norm(gradients))
    return {name: factor * g for name, g in gradients.items()}


class AdamW:
    """Loshchilov & Hutter, algorithm 2, in the order of torch: decay first, then the step."""

    def __init__(self, learning_rate=3e-4, weight_decay=1e-4, betas=(0.9, 0.999), epsilon=1e-8):
        self.learning_rate, self.weight_decay, self.betas, self.epsilon = (
            learning_rate,
            weight_decay,
            betas,
            epsilon,
        )
        self.steps, self.first, self.second = 0, {}, {}

    def step(self, parameters, gradients):
        """The parameters after one step."""
        self.steps += 1
        beta1, beta2 = self.betas
        after = {}
        for name, g in gradients.items():
            self.first[name] = beta1 * self.first.get(name, 0.0) + (1 - beta1) * g
            self.second[name] = beta2 * self.second.get(name, 0.0) + (1 - beta2) * g**2
            first = self.first[name] / (1 - beta1**self.steps)
            second = self.second[name] / (1 - beta2**self.steps)
            decayed = parameters[name] * (1 - self.learning_rate * self.weight_decay)
            after[name] = decayed - self.learning_rate * first / (np.sqrt(second) + self.epsilon)
        return after
