"""Small agents, a replay with every kind of ending, and a look at what an update computes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ogspr.agents.ogspr import OGSPRConfig, Sizes, preset
from ogspr.agents.ogspr.agent import OGSPRAgent
from ogspr.replay import Replay, ReplayShape
from ogspr.train.graph import Execution, make_accelerator
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec, TimeStep, Window
from tests.agents import reference
from tests.agents.states import move_all

CPU = torch.device("cpu")
KINDS = ("continuous", "discrete")
# All different, so that no size can stand in for another: where g sees h alone; where it sees features, too;
# and for variants without adapters.
ALL_UNEQUAL = Sizes(6, 24, 20, 26, 28, 22, 18, 16, (14, 10, 12))
UNEQUAL = Sizes(6, 24, 24, 26, 28, 22, 18, 16, (14, 10, 12))
EQUAL = Sizes(6, 24, 24, 24, 28, 22, 18, 16, (14, 10, 12))
Nudges = dict[str, dict[str, np.ndarray]]
NETWORKS = ("value_network", "policy", "target_core", "target_policy")


def make_spec(kind: str, side: int = 36) -> EnvSpec:
    """Colour and three frames where actions are continuous, grey and four where they are discrete."""
    if kind == "continuous":
        return EnvSpec("small", (3, side, side), 3, ContinuousActions(3), 2, 500)
    return EnvSpec("small", (1, side, side), 4, DiscreteActions(4), 4, None)


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


def small_config(kind: str, name: str = "ogspr", **changes: Any) -> OGSPRConfig:
    small = {"sizes": EQUAL, "batch_size": 16, "target_period": 1000}
    return replace(preset(name, SUITES[kind]), **small | changes)


def settings_for(kind: str, name: str = "ogspr", **changes: Any) -> reference.Settings:
    """What the reference has to know of a preset."""
    weights = {task: w for task, w in WEIGHTS[kind].items() if task != LEFT_OUT.get(name)}
    known = {
        "weights": weights,
        "discrete": kind == "discrete",
        "shared_adapter": name == "shared-adapter",
        "one_z": name == "as-written",
        "values_added": name == "as-written",
        "priority_exponent": 0.0 if kind == "discrete" and name != "as-written" else 0.4,
    }
    return reference.Settings(**known | changes)


class Recording:
    """An accelerator that runs everything plainly and lets a test see, or change, what functions return.

    Functions go by their names in `ogspr.agents.ogspr`: `arrange_noise`, `bootstrapped_target`, ...
    """

    def __init__(self) -> None:
        self._inner = make_accelerator(Execution("eager", "fp32"), CPU)
        self.results: dict[str, Any] = {}  # the last ones
        self.evidence: Any = None  # what the tasks last saw
        self.interventions: dict[str, Callable[..., Any]] = {}  # (result, *arguments) -> result

    def function(self, function):
        plain = self._inner.function(function)
        name = function.__qualname__.partition(".<locals>")[0]  # a function goes by the name of its maker

        def recorded(*args):
            intervene = self.interventions.get(name, lambda result, *_: result)
            self.results[name] = intervene(plain(*args), *args)
            if name.endswith(".loss"):
                _, _, self.evidence = args
            return self.results[name]

        return recorded

    def step(self, procedure):
        return self._inner.step(procedure)

    def branches(self, branches):
        return self._inner.branches(branches)


def make_agent(config: OGSPRConfig, spec: EnvSpec, seed: int = 0, accelerator: Any = None) -> OGSPRAgent:
    accelerator = accelerator or make_accelerator(Execution("eager", "fp32"), CPU)
    return OGSPRAgent(config, spec, seed=seed, device=CPU, accelerator=accelerator)


def scramble(agent: OGSPRAgent, seed: int = 0, size: float = 0.1) -> None:
    """As if it had made an update: at its first one it would copy its targets."""
    move_all(agent, NETWORKS, 1, seed, size)


# (steps, does it end by a terminal?) of the episodes in a replay, over and over.
EPISODES = ((8, True), (7, False), (1, True), (10, True), (2, False), (6, True))


def filled_replay(agent: OGSPRAgent, spec: EnvSpec, seed: int = 0, reward: float = 3.0, rounds: int = 3):
    """A replay whose ring has begun anew, with terminals and truncations. `reward`: size of rewards."""
    rng = np.random.default_rng(seed)
    shape = ReplayShape(
        90, spec.frame_shape, spec.frame_stack, spec.actions.vector_size, agent.config.longest_horizon
    )
    replay = Replay(shape, CPU)

    def time_step(terminated=False, truncated=False):
        picture = rng.integers(0, 256, spec.observation_shape, dtype=np.uint8)
        return TimeStep(picture, reward * rng.standard_normal(), 0.0, terminated, truncated, 1, np.zeros(0))

    for steps, terminal in EPISODES * rounds:
        replay.begin(time_step())
        for i in range(steps):
            last = i == steps - 1
            action = agent.action_vector(spec.actions.sample(rng))
            replay.add(action, time_step(last and terminal, last and not terminal))
    return replay


def scene(kind: str, name: str = "ogspr", *, side: int = 36, reward: float = 3.0, **changes: Any):
    """A scrambled agent of a preset, with a Recording, and a watched replay for it."""
    spec = make_spec(kind, side)
    agent = make_agent(small_config(kind, name, **changes), spec, accelerator=Recording())
    scramble(agent)
    return agent, Watched(filled_replay(agent, spec, reward=reward))


class Watched:
    """A replay that remembers the last windows and priorities that passed."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.windows: list[Window] = []
        self.priorities: torch.Tensor | None = None

    def valid_starts(self, horizon):
        return self.replay.valid_starts(horizon)

    def draw(self, wanted):
        self.windows = self.replay.draw(wanted)
        return self.windows

    def peek(self, wanted):
        return self.replay.peek(wanted)

    def set_priorities(self, starts, priorities, skip):
        self.priorities = priorities.clone()
        self.replay.set_priorities(starts, priorities, skip)

    def mean_absolute_reward(self):
        return self.replay.mean_absolute_reward()


# --- from the agent's world to the reference's ------------------------------------------------------


def arrays(agent: OGSPRAgent, part: str) -> dict[str, np.ndarray]:
    """The saved tensors of a part by name, as float64 copies."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): tensor.numpy().astype(np.float64)
        for name, tensor in agent.state_dict()["tensors"].items()
        if name.startswith(prefix)
    }


def layers(named: dict[str, np.ndarray], prefix: str = "") -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases under a prefix, in order."""
    chosen = {name: array for name, array in named.items() if name.startswith(prefix)}
    weights = [array for name, array in chosen.items() if name.split(".")[-1] == "weight"]
    biases = [array for name, array in chosen.items() if name.split(".")[-1] == "bias"]
    return list(zip(weights, biases, strict=True))


def networks(agent: OGSPRAgent, nudges: Nudges | None = None) -> reference.Networks:
    """The agent's networks as they are now; `nudges` are added to what learns, by part and name."""
    value, target, policy = (arrays(agent, part) for part in ("value_network", "target_core", "policy"))
    for part, nudge in (nudges or {}).items():
        for name, array in nudge.items():
            {"value_network": value, "policy": policy}[part][name] += array
    parts = ("encoder", "adapter1", "state_action", "long_term")
    return reference.Networks(
        core={part: layers(value, f"core.{part}.") for part in parts},
        heads={task.name: layers(value, f"heads.{task.name}.") for task in agent.config.tasks},
        power_vector=next((array for name, array in value.items() if name.endswith("expand.right")), None),
        policy=layers(policy),
        target_core={part: layers(target, f"{part}.") for part in parts},
        target_policy=layers(arrays(agent, "target_policy")),
    )


def windows(replay: Replay, window: Window) -> reference.Windows:
    steps = (window.starts[:, None] + torch.arange(window.horizon)) % len(replay.frames)
    numbers = replay.numbers.numpy().astype(np.float64)[steps.numpy()]
    return reference.Windows(
        window.frames.numpy(), window.rows.numpy(), numbers[..., :-2], numbers[..., -2], numbers[..., -1] == 1
    )


def chance(noise: Any) -> reference.Chance:
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
class Update:
    """One update of an agent, and the reference's of the same."""

    metrics: dict[str, float]
    returns: np.ndarray
    y: np.ndarray
    priorities: np.ndarray
    networks: reference.Networks  # before the update
    value: reference.Windows
    sequence: reference.Windows
    chance: reference.Chance
    targets: reference.Targets
    expected: dict[str, float]
    expected_priorities: np.ndarray


def observed_update(
    agent: OGSPRAgent, watched: Watched, settings: reference.Settings, *, synced: bool = False
) -> Update:
    """Updates an agent that has a Recording; what came out, and what should have.

    `synced`: it copies its targets first.
    """
    recording = agent._update._accelerator
    nets = networks(agent)
    if synced:
        nets = replace(nets, target_core=nets.core, target_policy=nets.policy)
    agent.metrics()
    agent.update(watched)
    value, sequence = (windows(watched.replay, window) for window in watched.windows)
    drawn = chance(recording.results["arrange_noise"])
    targets = reference.targets_of(nets, value, sequence, drawn, settings)
    expected, priorities = reference.losses(nets, value, sequence, drawn, targets, settings)
    return Update(
        metrics=agent.metrics(),
        returns=recording.evidence.short_return.numpy(),
        y=recording.results["bootstrapped_target"].numpy(),
        priorities=watched.priorities.numpy(),
        networks=nets,
        value=value,
        sequence=sequence,
        chance=drawn,
        targets=targets,
        expected=expected,
        expected_priorities=priorities,
    )
