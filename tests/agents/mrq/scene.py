"""Small agents of MR.Q, and a look at either kind of update beside the reference's account of it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ogspr.agents.mrq import MRQConfig, Sizes
from tests.agents.mrq import reference
from tests.agents.reference import Windows, pictures, symexp_bins, two_hot
from tests.agents.scene import Scene, arrays, as_windows, doubles, float64, gradients, layers, parameters_of

UNEQUAL = Sizes(6, 24, 14, 28, 26, 22, 18)  # so that no size can stand in for another
NETWORKS = ("core", "model", "policy", "target_core", "target_policy")


def small_config(**changes):
    small = {"sizes": UNEQUAL, "batch_size": 16, "target_period": 1000}
    return replace(MRQConfig(), **small | changes)


def settings_for(kind="continuous", **changes):
    return reference.Settings(discrete=kind == "discrete", **changes)


def scene(kind="continuous", *, side=36, reward=3.0, **changes):
    return Scene(small_config(**changes), kind, side=side, reward=reward)


def parameters(scene):
    """Everything that learns, by name."""
    nets = scene.networks
    return parameters_of(core=nets.core, model=nets.model, policy=nets.policy)


# --- from the agent's world to the reference's ------------------------------------------------------


def core_layers(named):
    parts = {"embedding": "state_action.embedding", "state_action": "state_action.mlp"}
    return {
        part: layers(named, f"{parts.get(part, part)}.")
        for part in ("encoder", "embedding", "state_action", "long_term")
    }


def networks(agent, nudges=None):
    """The agent's networks as they are now; `nudges` are added by part and name."""
    parts = {part: arrays(agent, part) for part in NETWORKS}
    for part, nudge in (nudges or {}).items():
        for name, array in nudge.items():
            parts[part][name] += array
    return reference.Networks(
        core=core_layers(parts["core"]),
        model=layers(parts["model"]),
        policy=layers(parts["policy"]),
        target_core=core_layers(parts["target_core"]),
        target_policy=layers(parts["target_policy"]),
    )


@dataclass(frozen=True)
class Expected:
    """What the reference makes of an update."""

    window: Windows
    chance: Any
    losses: dict
    slopes: dict
    """By what is trained, then by the names that optimisers use."""
    targets: list | None = None
    returns: np.ndarray | None = None
    y: np.ndarray | None = None
    priorities: np.ndarray | None = None


def compared_encoder(scene, settings, change=lambda noise: noise):
    """A look at the next update of the encoder, and what the reference expects of it."""
    nets, modules = networks(scene.agent), doubles(scene.networks.core, scene.networks.model)
    look = scene.look("encoder", change)
    window = as_windows(scene.replay, look.windows["sequence"])
    now, later = (offsets.numpy() for offsets in look.noise)
    chance = reference.EncoderChance(now, later.reshape(settings.horizon, -1, 2))
    targets = reference.latent_targets(nets, window, chance, settings)
    losses = reference.encoder_losses(nets, window, chance, targets, settings)
    slopes = encoder_slopes(*modules, window, chance, targets, settings)
    return look, Expected(window, chance, losses, slopes, targets)


def compared_values(scene, settings, change=lambda noise: noise):
    """The same for the next update of values and policy."""
    nets, modules = networks(scene.agent), doubles(scene.networks.core, scene.networks.policy)
    look = scene.look("value", change)
    window = as_windows(scene.replay, look.windows["value"])
    now, later, *others = look.noise
    chance = reference.ValueChance(now.numpy(), later.numpy(), *(part.double().numpy() for part in others))
    returns, y = reference.value_targets(nets, window, chance, settings)
    losses, priorities = reference.value_losses(nets, window, chance, y, settings)
    slopes = value_slopes(*modules, window, chance, y, settings)
    return look, Expected(window, chance, losses, slopes, None, returns, y, priorities)


# --- gradients, by torch in float64, on the reference's data ----------------------------------------


def encoder_slopes(core, model, sequence, chance, targets, settings):
    h = core.encoder(float64(pictures(sequence.frames, sequence.stack(0), chance.now, settings)))
    size, bins, total = h.shape[1], symexp_bins(), 0.0
    for k in range(settings.horizon):
        out = model.outputs(core.state_action(h, float64(sequence.actions[:, k])))
        h, logits, done = out[:, :size], out[:, size:-1], out[:, -1]
        counts = float64([not any(flags[:k]) for flags in sequence.terminated])
        codes = float64([two_hot(reward, bins) for reward in sequence.rewards[:, k]])
        errors = settings.dynamics_weight * (h - float64(targets[k])).square().mean(1)
        errors = errors + settings.reward_weight * F.cross_entropy(logits, codes, reduction="none")
        if settings.terminal_seen:
            errors = errors + settings.done_weight * (done - float64(sequence.terminated[:, k])).square()
        total = total + (errors * counts).mean()
    trained = parameters_of(encoder=core.encoder, state_action=core.state_action, model=model)
    return {"encoder": gradients(total, trained)}


def value_slopes(core, policy, value, chance, y, settings):
    """Of the value loss by the values, of the policy's by the policy."""
    h = core.encoder(float64(pictures(value.frames, value.stack(0), chance.now, settings))).detach()
    z = core.state_action(h, float64(value.actions[:, 0])).detach()
    value_loss = sum(F.huber_loss(q, float64(y)) for q in core.long_term(z)[:, :, 0]) / 2
    pre = policy(h)
    action = torch.tanh(pre)
    if settings.discrete:
        gumbel = -torch.log(-torch.log(float64(chance.policy_uniforms)))
        action = F.softmax((pre + gumbel) / settings.temperature, 1)
    judged = core.long_term(core.state_action(h, action))
    policy_loss = -judged.mean() + settings.pre_activation_weight * pre.square().mean()
    return {
        "value": gradients(value_loss, dict(core.long_term.named_parameters())),
        "policy": gradients(policy_loss, dict(policy.named_parameters())),
    }
