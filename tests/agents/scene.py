"""Small agents of any method, a replay with every kind of ending, and a look at what an update computes."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ogspr.agents.agent import Agent
from ogspr.agents.learning import Sampler
from ogspr.agents.protocol import Losses, Update
from ogspr.device import CPU
from ogspr.replay import Replay, ReplayShape
from ogspr.training.graph import PlainAccelerator
from ogspr.training.options import Execution
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, TimeStep
from tests.agents import reference

KINDS = ("continuous", "discrete")
LATE = 10**6  # agent steps after which nothing is random any more but noise
# (steps, does it end by a terminal?) of the episodes in a replay, over and over.
EPISODES = ((8, True), (7, False), (1, True), (10, True), (2, False), (6, True))


def close(actual, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)


def make_spec(kind, side=36):
    """Colour and three frames where actions are continuous, grey and four where they are discrete."""
    if kind == "continuous":
        return EnvSpec("small", (3, side, side), 3, ContinuousActions(3), 2, 500)
    return EnvSpec("small", (1, side, side), 4, DiscreteActions(4), 4, None)


def images_of(spec, *counts, seed=0):
    """Observations of noise."""
    shape = (*counts, *spec.observation_shape)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


class Recording(PlainAccelerator):
    """Runs everything plainly, and remembers the last call of each function: its arguments and its result."""

    def __init__(self):
        super().__init__(CPU.torch, Execution("eager", "fp32"))
        self.calls = {}
        self.procedures = []

    def function(self, function):
        def recorded(*arguments):
            result = function(*arguments)
            self.calls[function.__name__] = (arguments, result)
            return result

        return recorded

    def step(self, procedure):
        self.procedures.append(procedure)
        return super().step(procedure)


def make_agent(config, spec, seed=0, accelerator=None):
    return Agent(config, spec, seed=seed, device=CPU, accelerator=accelerator or Recording())


def filled_replay(spec, *, reward=3.0, rounds=3, seed=0):
    """A replay whose ring has begun anew, with terminals and truncations. `reward`: size of rewards."""
    rng = np.random.default_rng(seed)
    size = spec.actions.vector_size
    replay = Replay(ReplayShape(90, spec.frame_shape, spec.frame_stack, size, longest_horizon=5), CPU)

    def time_step(terminated=False, truncated=False):
        picture = rng.integers(0, 256, spec.observation_shape, dtype=np.uint8)
        return TimeStep(picture, reward * rng.standard_normal(), 0.0, terminated, truncated, 1, np.zeros(0))

    for steps, terminal in EPISODES * rounds:
        replay.begin(time_step())
        for i in range(steps):
            last = i == steps - 1
            action = spec.actions.sample(rng)
            vector = action if action.shape else np.eye(size)[action]
            replay.add(vector, time_step(last and terminal, last and not terminal))
    return replay


class Scene:
    """An agent as if it had made some updates, and a replay for it."""

    def __init__(self, config, kind="continuous", *, side=36, reward=3.0, updates=1, seed=0):
        self.spec = make_spec(kind, side)
        self.recording = Recording()
        self.agent = make_agent(config, self.spec, seed, self.recording)
        self.replay = filled_replay(self.spec, reward=reward)
        scramble(self.agent, updates)

    @property
    def networks(self):
        return self.agent.method.networks

    def look(self, kind="all", change=lambda noise: noise, seed=None):
        """At the next update of a kind. As an update does, it moves the power iteration, and nothing else.

        Args:
            change: Of the update's noise.
            seed: Of a batch and noise of its own.
        """
        generator = torch.Generator()
        if seed is None:
            generator.set_state(self.agent.state_dict()["generator"])
        else:
            generator.manual_seed(seed)
        update = self.agent.method.updates[kind]
        windows, noise = Sampler(update, generator)(self.replay.peek)
        noise = change(noise)
        found = update.losses(windows, noise)
        return Look(update, windows, noise, found, dict(self.recording.calls))

    def learn(self, kind="all"):
        """One update of a kind, and nothing that comes with it by schedule."""
        self.agent.learning[kind](self.replay)

    def spoil_rewards(self):
        self.replay.numbers[:, -2] = float("nan")


@dataclass(frozen=True)
class Look:
    """What one kind of update computes, of which batch and noise."""

    update: Update
    windows: dict[str, Any]
    noise: Any
    found: Losses
    calls: dict[str, Any]

    @property
    def losses(self):
        return {name: float(term.detach()) for name, term in self.found.terms.items()}

    @property
    def weights(self):
        factors = self.found.factors
        return {name: weight * float(factors.get(name, 1.0)) for name, weight in self.update.weights.items()}

    def result(self, function):
        _, result = self.calls[function]
        return result

    def slopes(self):
        """The gradient of the weighted sum by what is trained, then by parameter."""
        total = sum(weight * self.found.terms[name] for name, weight in self.weights.items())
        return {
            name: gradients(total, {n: p for group in trained.groups for n, p in group.named.items()})
            for name, trained in self.update.trains.items()
        }


def gradients(loss, parameters):
    """Arrays by name; a parameter without a gradient is an error."""
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
    return {name: slope.double().numpy() for name, slope in zip(parameters, found, strict=True)}


def assert_slopes_close(found, expected):
    """Gradients in float32 beside those in float64: their norm, and all of their numbers."""
    assert found.keys() == expected.keys()
    close(reference.global_norm(found), reference.global_norm(expected))
    for name, slope in expected.items():
        close(found[name], slope, 1e-3, 1e-4 * np.abs(slope).max())


def reached(terms, parameters):
    """By loss, the names of the parameters that it gives a gradient which is not zero."""
    found = {}
    for loss, term in terms.items():
        slopes = torch.autograd.grad(term, parameters.values(), retain_graph=True, allow_unused=True)
        named = pieces(dict(zip(parameters, slopes, strict=True)))
        found[loss] = {name for name, slope in named.items() if slope is not None and slope.any()}
    return found


def pieces(named):
    """Tensors by name, those of a pair of values one by one."""
    parts = {}
    for name, tensor in named.items():
        pair = "long_term" in name or "pair" in name
        parts |= (
            {f"{name}[{j}]": None if tensor is None else tensor[j] for j in range(2)}
            if pair
            else {name: tensor}
        )
    return parts


def parameters_of(**modules):
    """Everything in some modules that learns, by name."""
    return {f"{part}.{name}": p for part, module in modules.items() for name, p in module.named_parameters()}


def scramble(agent, updates, seed=0, size=0.1):
    """Moves every number of its networks, so that targets differ from what learns and no bias is zero.

    The agent believes that it has made so many updates: at the first one it might copy its targets.
    """
    rng = np.random.default_rng(seed)
    state = copy.deepcopy(agent.state_dict())
    parts = tuple(f"{part}." for part in agent.method.tensors())
    for name, tensor in state["tensors"].items():
        if name.startswith(parts) and tensor.ndim:
            tensor.add_(torch.from_numpy(rng.standard_normal(tensor.shape)), alpha=size)
    agent.load_state_dict(state | {"updates": updates})


# --- from the agent's world to the reference's ------------------------------------------------------


def arrays(agent, part):
    """The saved tensors of a part by name, as float64 copies."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): tensor.numpy().astype(np.float64)
        for name, tensor in agent.state_dict()["tensors"].items()
        if name.startswith(prefix)
    }


def layers(named, prefix=""):
    """Weights and biases under a prefix, in order."""
    chosen = {name: array for name, array in named.items() if name.startswith(prefix)}
    weights = [array for name, array in chosen.items() if name.split(".")[-1] == "weight"]
    biases = [array for name, array in chosen.items() if name.split(".")[-1] == "bias"]
    return list(zip(weights, biases, strict=True))


def as_windows(replay, window):
    """With actions, rewards and terminals straight from replay."""
    steps = (window.starts[:, None] + torch.arange(window.horizon)) % len(replay.frames)
    numbers = replay.numbers.numpy().astype(np.float64)[steps.numpy()]
    return reference.Windows(
        window.frames.numpy(), window.rows.numpy(), numbers[..., :-2], numbers[..., -2], numbers[..., -1] == 1
    )


def places_of_terminals(window):
    """Where in the stretches the first terminals are; None: nowhere."""
    return {int(np.argmax(flags)) if flags.any() else None for flags in window.terminated}


def doubles(*modules):
    """Copies in float64."""
    return [copy.deepcopy(module).double() for module in modules]


def float64(array):
    return torch.from_numpy(np.ascontiguousarray(array, np.float64))
