"""Small agents of MR.Q, and a look at what each kind of update computes beside what it should."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.agents.mrq.agent import MRQAgent
from ogspr.train.graph import Execution, make_accelerator
from ogspr.types import EnvSpec
from tests.agents.mrq import reference
from tests.agents.reference import Windows, pictures, symexp_bins, two_hot
from tests.agents.scene import CPU, Recording, arrays, filled_replay, layers, make_spec, windows
from tests.agents.scene import Watched as WatchedDraws
from tests.agents.states import move_all

UNEQUAL = Sizes(6, 24, 14, 28, 26, 22, 18)  # so that no size can stand in for another
NETWORKS = ("core", "model", "policy", "target_core", "target_policy")
Nudge = dict[str, np.ndarray]


def small_config(**changes: Any) -> MRQConfig:
    small = {"sizes": UNEQUAL, "batch_size": 16, "target_period": 1000}
    return replace(MRQConfig(), **small | changes)


def settings_for(kind: str, **changes: Any) -> reference.Settings:
    return reference.Settings(discrete=kind == "discrete", **changes)


def make_agent(config: MRQConfig, spec: EnvSpec, seed: int = 0, accelerator: Any = None) -> MRQAgent:
    accelerator = accelerator or make_accelerator(Execution("eager", "fp32"), CPU)
    return MRQAgent(config, spec, seed=seed, device=CPU, accelerator=accelerator)


def scramble(agent: MRQAgent, seed: int = 0, size: float = 0.1) -> None:
    """As if it had made an update: at its first one it would copy its targets."""
    move_all(agent, NETWORKS, 1, seed, size)


class Watched(WatchedDraws):
    """Also remembers how many windows of which horizon were drawn, in order."""

    def __init__(self, replay: Any) -> None:
        super().__init__(replay)
        self.horizons: list[int] = []

    def draw(self, wanted):
        self.horizons += [horizon for horizon, _ in wanted]
        return super().draw(wanted)

    def finish_drawing(self):
        self.replay.finish_drawing()

    def changed_by_updates(self):
        return self.replay.changed_by_updates()


def scene(kind: str, *, side: int = 36, reward: float = 3.0, **changes: Any) -> tuple[MRQAgent, Watched]:
    """A scrambled agent with a Recording, and a watched replay for it."""
    spec = make_spec(kind, side)
    agent = make_agent(small_config(**changes), spec, accelerator=Recording())
    scramble(agent)
    return agent, Watched(filled_replay(agent, spec, reward=reward))


def recording(agent: MRQAgent) -> Recording:
    return agent._value._accelerator


def update_encoder(agent: MRQAgent, replay: Watched) -> None:
    """One update of a burst, without the rest."""
    agent._encoder.phases(replay)


# --- from the agent's world to the reference's ------------------------------------------------------


def core_layers(named: dict[str, np.ndarray]) -> dict[str, list]:
    parts = {"embedding": "state_action.embedding", "state_action": "state_action.mlp"}
    return {
        part: layers(named, f"{parts.get(part, part)}.")
        for part in ("encoder", "embedding", "state_action", "long_term")
    }


def networks(agent: MRQAgent, nudges: dict[str, Nudge] | None = None) -> reference.Networks:
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
class EncoderUpdate:
    """One update of the encoder, and the reference's of the same."""

    metrics: dict[str, float]
    networks: reference.Networks  # before the update
    sequence: Windows
    chance: reference.EncoderChance
    targets: list[np.ndarray]
    expected: dict[str, float]
    gradients: dict[str, dict[str, np.ndarray]]  # what they should have been, by part and name


@dataclass(frozen=True)
class ValueUpdate:
    """One update of values and policy, and the reference's of the same."""

    metrics: dict[str, float]
    returns: np.ndarray
    y: np.ndarray
    priorities: np.ndarray
    networks: reference.Networks
    value: Windows
    chance: reference.ValueChance
    expected: dict[str, float]
    expected_returns: np.ndarray
    expected_y: np.ndarray
    expected_priorities: np.ndarray
    gradients: dict[str, dict[str, np.ndarray]]


def observed_encoder_update(agent: MRQAgent, watched: Watched, settings: reference.Settings) -> EncoderUpdate:
    nets, modules = networks(agent), double(agent)
    agent.metrics()
    update_encoder(agent, watched)
    sequence = windows(watched.replay, watched.windows[0])
    noise = recording(agent).results["arrange_encoder_noise"]
    chance = reference.EncoderChance(noise.now.numpy(), noise.later.numpy().reshape(settings.horizon, -1, 2))
    targets = reference.latent_targets(nets, sequence, chance, settings)
    return EncoderUpdate(
        agent.metrics(),
        nets,
        sequence,
        chance,
        targets,
        reference.encoder_losses(nets, sequence, chance, targets, settings),
        encoder_gradients(modules, sequence, chance, targets, settings),
    )


def observed_value_update(
    agent: MRQAgent, watched: Watched, settings: reference.Settings, *, synced: bool = False
) -> ValueUpdate:
    """`synced`: targets become copies first, and updates of the encoder follow, before the values learn."""
    before, modules = networks(agent), double(agent)
    agent.metrics()
    agent.update(watched)
    learned, after = networks(agent).core, double(agent)["core"]
    nets = replace(before, core=learned | {"long_term": before.core["long_term"]})
    modules["core"].encoder, modules["core"].state_action = after.encoder, after.state_action
    if synced:
        nets = replace(nets, target_core=before.core, target_policy=before.policy)
    value = windows(watched.replay, watched.windows[0])
    noise = recording(agent).results["arrange_value_noise"]
    chance = reference.ValueChance(
        noise.now.numpy(),
        noise.later.numpy(),
        noise.target_action.double().numpy(),
        noise.target_gumbel.double().numpy(),
        noise.policy_gumbel.double().numpy(),
    )
    returns, y = reference.value_targets(nets, value, chance, settings)
    expected, priorities = reference.value_losses(nets, value, chance, y, settings)
    return ValueUpdate(
        agent.metrics(),
        recording(agent).results["n_step_return"].numpy(),
        recording(agent).results["bootstrapped_target"].numpy(),
        watched.priorities.numpy(),
        nets,
        value,
        chance,
        expected,
        returns,
        y,
        priorities,
        value_gradients(modules, value, chance, y, settings),
    )


# --- gradients, by torch in float64, on the reference's data ----------------------------------------


def double(agent: MRQAgent) -> dict[str, torch.nn.Module]:
    nets = agent.networks
    core, model, policy = copy.deepcopy((nets.core, nets.model, nets.policy))
    return {"core": core.double(), "model": model.double(), "policy": policy.double()}


def tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.float64))


def gradients(loss: torch.Tensor, modules: dict[str, torch.nn.Module]) -> dict[str, dict[str, np.ndarray]]:
    """By part and name, of all parameters that the loss depends on."""
    named = [(part, name, p) for part, module in modules.items() for name, p in module.named_parameters()]
    found = torch.autograd.grad(loss, [p for _, _, p in named], allow_unused=True, retain_graph=True)
    by_part: dict[str, dict[str, np.ndarray]] = {}
    for (part, name, _), gradient in zip(named, found, strict=True):
        if gradient is not None:
            by_part.setdefault(part, {})[name] = gradient.numpy()
    return by_part


def encoder_gradients(modules, sequence, chance, targets, settings):
    core, linear = modules["core"], modules["model"].outputs
    h = core.encoder(tensor(pictures(sequence.frames, sequence.stack(0), chance.now, settings)))
    size, bins, total = h.shape[1], symexp_bins(), 0.0
    for k in range(settings.horizon):
        out = linear(core.state_action(h, tensor(sequence.actions[:, k])))
        h, logits, done = out[:, :size], out[:, size:-1], out[:, -1]
        counts = tensor([not any(flags[:k]) for flags in sequence.terminated])
        codes = tensor([two_hot(reward, bins) for reward in sequence.rewards[:, k]])
        errors = settings.dynamics_weight * (h - tensor(targets[k])).square().mean(1)
        errors = errors + settings.reward_weight * F.cross_entropy(logits, codes, reduction="none")
        if settings.terminal_seen:
            errors = errors + settings.done_weight * (done - tensor(sequence.terminated[:, k])).square()
        total = total + (errors * counts).mean()
    return gradients(total, modules)


def value_gradients(modules, value, chance, y, settings):
    """Of the value loss by the values, of the policy's by the policy."""
    core, policy = modules["core"], modules["policy"]
    h = core.encoder(tensor(pictures(value.frames, value.stack(0), chance.now, settings))).detach()
    z = core.state_action(h, tensor(value.actions[:, 0])).detach()
    value_loss = sum(F.huber_loss(q, tensor(y)) for q in core.long_term(z)[:, :, 0]) / 2
    pre = policy(h)
    action = torch.tanh(pre)
    if settings.discrete:
        gumbel = -torch.log(-torch.log(tensor(chance.policy_uniforms)))
        action = F.softmax((pre + gumbel) / settings.temperature, 1)
    judged = core.long_term(core.state_action(h, action))
    policy_loss = -judged.mean() + settings.pre_activation_weight * pre.square().mean()
    return gradients(value_loss, {"core": core}) | gradients(policy_loss, {"policy": policy})
