"""Gradients of the combined and the policy loss, by torch in float64, on the reference's data."""

import copy
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ogspr.agents.ogspr.agent import OGSPRAgent
from tests.agents import reference
from tests.agents.scene import Update, Watched, observed_update


class Slopes(NamedTuple):
    """Losses and their gradients by parameter name."""

    combined: float
    policy_loss: float
    value_network: dict[str, np.ndarray]
    policy: dict[str, np.ndarray]


def update_with_slopes(
    agent: OGSPRAgent, replay: Watched, settings: reference.Settings
) -> tuple[Update, Slopes]:
    """Updates the agent; the reference's account of it and the gradients it should have had."""
    value_network, policy = copy.deepcopy((agent.value_network, agent.policy))
    update = observed_update(agent, replay, settings)
    return update, slopes(value_network.double(), policy.double(), update, settings)


def slopes(value_network, policy, update: Update, settings: reference.Settings) -> Slopes:
    core, heads, chance = value_network.core, value_network.heads, update.chance

    def tensor(array):
        return torch.from_numpy(np.ascontiguousarray(array, np.float64))

    def features(window, offsets):
        return core.encoder(tensor(reference.pictures(window.frames, window.stack(0), offsets, settings)))

    def values(h, action):
        return core.long_term(core.state_action(h, action))[:, :, 0]

    def observation():
        errors = F.mse_loss(heads["observation"](z_aux), tensor(update.targets.next_frame), reduction="sum")
        return errors / len(z_aux)

    def short_term_value():
        bins = reference.symexp_bins()
        codes = np.stack([reference.two_hot(value, bins) for value in update.targets.returns])
        return F.cross_entropy(heads["short_term_value"](z_aux), tensor(codes))

    def self_prediction():
        total, x = 0.0, core.adapter1(features(update.sequence, chance.sequence_now))
        for k, target in enumerate(update.targets.latents):
            x = heads["self_prediction"](core.state_action(x, tensor(update.sequence.actions[:, k])))
            counts = tensor([not any(flags[:k]) for flags in update.sequence.terminated])
            total = total + ((x - tensor(target)).square().mean(1) * counts).mean()
        return total

    f, y = features(update.value, chance.now), tensor(update.targets.y)
    h, action = core.adapter1(f), tensor(update.value.actions[:, 0])
    z = core.state_action(h, action)
    z_aux = z if settings.one_z else core.state_action(f, action)
    combined = sum(F.huber_loss(q, y) for q in core.long_term(z)[:, :, 0])
    combined = combined if settings.values_added else combined / 2
    tasks = {f.__name__: f for f in (observation, short_term_value, self_prediction)}
    for name, weight in settings.weights.items():
        combined = combined + weight * tasks[name]()

    pre = policy(h.detach())
    action = torch.tanh(pre)
    if settings.discrete:
        gumbel = -torch.log(-torch.log(tensor(chance.policy_uniforms)))
        action = F.softmax((pre + gumbel) / settings.temperature, 1)
    policy_loss = -values(h.detach(), action).mean() + settings.pre_activation_weight * pre.square().mean()
    return Slopes(
        combined.item(),
        policy_loss.item(),
        gradients(combined, value_network),
        gradients(policy_loss, policy),
    )


def gradients(loss, module) -> dict[str, np.ndarray]:
    names, parameters = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, retain_graph=True)
    return {name: g.numpy() for name, g in zip(names, found, strict=True)}
