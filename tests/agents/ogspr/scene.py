"""Small agents of OG-SPR's variants, and one look at an update beside the reference's account of it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

from ogspr.agents.ogspr import Sizes, preset
from tests.agents import reference
from tests.agents.scene import Scene, arrays, as_windows, doubles, float64, gradients, layers, parameters_of

# All different, so that no size can stand in for another: where g sees h alone; where it sees features, too;
# and for variants without adapters.
ALL_UNEQUAL = Sizes(6, 24, 20, 26, 28, 22, 18, 16, (14, 10, 12))
UNEQUAL = Sizes(6, 24, 24, 26, 28, 22, 18, 16, (14, 10, 12))
EQUAL = Sizes(6, 24, 24, 24, 28, 22, 18, 16, (14, 10, 12))

# The weights of the auxiliary losses: DMControl with continuous, Atari100k with discrete actions.
SUITES = {"continuous": "dmc", "discrete": "atari100k"}
WEIGHTS = {
    "continuous": {"observation": 0.1, "short_term_value": 1.0, "self_prediction": 5.0},
    "discrete": {"observation": 1.0, "short_term_value": 1.0, "self_prediction": 2.0},
}
LEFT_OUT = {
    "ogspr-op": "observation",
    "ogspr-sp": "self_prediction",
    "ogspr-svp": "short_term_value",
    "anonmethod": "self_prediction",
}


def small_config(kind="continuous", name="ogspr", **changes):
    small = {"sizes": EQUAL, "batch_size": 16, "target_period": 1000}
    return replace(preset(name, SUITES[kind]), **small | changes)


def scene(kind="continuous", name="ogspr", *, side=36, reward=3.0, **changes):
    return Scene(small_config(kind, name, **changes), kind, side=side, reward=reward)


def settings_for(kind="continuous", name="ogspr", **changes):
    """What the reference has to know of a preset."""
    known = {
        "weights": {task: w for task, w in WEIGHTS[kind].items() if task != LEFT_OUT.get(name)},
        "discrete": kind == "discrete",
        "shared_adapter": name == "shared-adapter",
        "one_z": name == "as-written",
        "values_added": name == "as-written",
        "priority_exponent": 0.0 if kind == "discrete" and name != "as-written" else 0.4,
    }
    return reference.Settings(**known | changes)


def parameters(scene):
    """Everything that learns, by name."""
    return parameters_of(value_network=scene.networks.value, policy=scene.networks.policy)


# --- from the agent's world to the reference's ------------------------------------------------------


def networks(agent, nudges=None):
    """The agent's networks as they are now; `nudges` are added to what learns, by part and name."""
    value, target, policy = (arrays(agent, part) for part in ("value_network", "target_core", "policy"))
    for part, nudge in (nudges or {}).items():
        for name, array in nudge.items():
            {"value": value, "policy": policy}[part][name] += array
    parts = ("encoder", "adapter1", "state_action", "long_term")
    return reference.Networks(
        core={part: layers(value, f"core.{part}.") for part in parts},
        heads={task.name: layers(value, f"heads.{task.name}.") for task in agent.config.tasks},
        power_vector=next((array for name, array in value.items() if name.endswith("expand.right")), None),
        policy=layers(policy),
        target_core={part: layers(target, f"{part}.") for part in parts},
        target_policy=layers(arrays(agent, "target_policy")),
    )


def chance(noise):
    batch = len(noise.now)
    return reference.Chance(
        noise.now.numpy(),
        noise.later.numpy(),
        noise.sequence_now.numpy(),
        noise.sequence_later.numpy().reshape(-1, batch, 2),
        noise.target_action.double().numpy(),
        noise.target_gumbel.double().numpy(),
        noise.policy_gumbel.double().numpy(),
    )


@dataclass(frozen=True)
class Expected:
    """What the reference makes of an update."""

    settings: reference.Settings
    modules: list
    """The value network and the policy in float64, for gradients by torch."""
    value: reference.Windows
    sequence: reference.Windows
    chance: reference.Chance
    targets: reference.Targets
    losses: dict
    priorities: np.ndarray

    @cached_property
    def totals(self):
        """The losses of the value network and the policy once more, by torch on the reference's data."""
        value_network, policy = self.modules
        h = value_network.core.adapter1(self._features(self.value, self.chance.now))
        return {"value": self._combined(h), "policy": self._policy_loss(policy, h.detach())}

    @cached_property
    def slopes(self):
        named = dict(
            zip(("value", "policy"), (dict(m.named_parameters()) for m in self.modules), strict=True)
        )
        return {name: gradients(self.totals[name], parameters) for name, parameters in named.items()}

    def _features(self, window, offsets):
        images = reference.pictures(window.frames, window.stack(0), offsets, self.settings)
        return self.modules[0].core.encoder(float64(images))

    def _combined(self, h):
        core, settings = self.modules[0].core, self.settings
        action, y = float64(self.value.actions[:, 0]), float64(self.targets.y)
        z = core.state_action(h, action)
        features = self._features(self.value, self.chance.now)
        z_aux = z if settings.one_z else core.state_action(features, action)
        total = sum(F.huber_loss(q, y) for q in core.long_term(z)[:, :, 0])
        total = total if settings.values_added else total / 2
        tasks = {
            "observation": self._observation,
            "short_term_value": self._short_term_value,
            "self_prediction": self._self_prediction,
        }
        return total + sum(weight * tasks[name](z_aux) for name, weight in settings.weights.items())

    def _observation(self, z_aux):
        predicted = self.modules[0].heads["observation"](z_aux)
        return F.mse_loss(predicted, float64(self.targets.next_frame), reduction="sum") / len(z_aux)

    def _short_term_value(self, z_aux):
        bins = reference.symexp_bins()
        codes = float64([reference.two_hot(value, bins) for value in self.targets.returns])
        return F.cross_entropy(self.modules[0].heads["short_term_value"](z_aux), codes)

    def _self_prediction(self, _z_aux):
        core, head = self.modules[0].core, self.modules[0].heads["self_prediction"]
        total, x = 0.0, core.adapter1(self._features(self.sequence, self.chance.sequence_now))
        for k, target in enumerate(self.targets.latents):
            x = head(core.state_action(x, float64(self.sequence.actions[:, k])))
            counts = float64([not any(flags[:k]) for flags in self.sequence.terminated])
            total = total + ((x - float64(target)).square().mean(1) * counts).mean()
        return total

    def _policy_loss(self, policy, h):
        core, settings = self.modules[0].core, self.settings
        pre = policy(h)
        action = torch.tanh(pre)
        if settings.discrete:
            gumbel = -torch.log(-torch.log(float64(self.chance.policy_uniforms)))
            action = F.softmax((pre + gumbel) / settings.temperature, 1)
        values = core.long_term(core.state_action(h, action))
        return -values.mean() + settings.pre_activation_weight * pre.square().mean()


def compared(scene, settings, change=lambda noise: noise):
    """A look at the next update, and what the reference expects of it."""
    nets = networks(scene.agent)
    modules = doubles(scene.networks.value, scene.networks.policy)
    look = scene.look(change=change)
    value, sequence = (as_windows(scene.replay, window) for window in look.windows.values())
    drawn = chance(look.noise)
    targets = reference.targets_of(nets, value, sequence, drawn, settings)
    losses, priorities = reference.losses(nets, value, sequence, drawn, targets, settings)
    return look, Expected(settings, modules, value, sequence, drawn, targets, losses, priorities)
