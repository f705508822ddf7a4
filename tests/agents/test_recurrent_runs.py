"""Whole runs of a method that remembers: it learns from runs of steps, and acts by a hidden state."""

import os
import signal
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ogspr.agents.actor_critic import Continuous
from ogspr.agents.methods import Factories, MethodEntry, register
from ogspr.agents.protocol import Group, Losses, Normal, Trained, Update
from ogspr.records.tables import read_rows
from ogspr.training.options import KeepOptions
from ogspr.training.signals import Stopped
from ogspr.types import Draw
from tests.training import runs
from tests.training.test_runs import StopAfter

UNITS = 8


@dataclass(frozen=True)
class RecallConfig:
    batch_size: int = 4
    random_steps: int = 30  # ends within an episode
    tolerated_failures: int = 3

    longest_horizon = 6


class Memory(nn.ModuleDict):
    """A hidden state from step to step, and what is read from it: a reward, and an action."""

    def __init__(self, spec):
        inputs = spec.observation_shape[0] * 9
        heads = {"value": nn.Linear(UNITS, 1), "policy": nn.Linear(UNITS, spec.actions.size)}
        super().__init__({"cell": nn.GRUCell(inputs, UNITS), **heads})

    def forward(self, images, hidden, first):
        seen = F.adaptive_avg_pool2d(images / 255.0, 3).flatten(1)
        start = torch.ones_like(hidden)  # not what it is before the first step
        return self["cell"](seen, torch.where(first.bool()[:, None], start, hidden))


class ActNoise(NamedTuple):
    normals: Any


class RecallActor:
    def __init__(self, memory, spec):
        self.actions = Continuous(spec.actions.size)
        self.modules = {"memory": memory}

    def initial_carry(self, count):
        return {"hidden": torch.zeros(count, UNITS)}

    def noise(self, count, explore):
        return ActNoise(Normal((count, self.actions.size))) if explore else ()

    def at_step(self, agent_steps):
        pass

    def act(self, images, carry, first, noise, explore):
        memory = self.modules["memory"]
        hidden = memory(images, carry["hidden"], first)
        action = torch.tanh(memory["policy"](hidden))
        return self.actions.perturb(action, noise.normals) if explore else action, {"hidden": hidden}


class Recall:
    def __init__(self, config, spec, _device, _runner):
        self.random_steps = config.random_steps
        self.memory = Memory(spec)
        self.learned = (self.memory,)
        self.actor = RecallActor(self.memory, spec)
        groups = [Group(module, 1e-2) for module in self.memory.values()]  # two have equal names
        draw = Draw(config.batch_size, config.longest_horizon, across_episodes=True)
        self.updates = {
            "all": Update(
                draws={"run": draw},
                noise=(),
                losses=self._losses,
                trains={"memory": Trained(groups, clip_norm=1.0)},
                weights={"reward": 1.0, "size": 1e-2},
            )
        }

    def _losses(self, windows, _noise):
        window = windows["run"]
        hidden, found = torch.zeros(len(window.starts), UNITS), []
        for k in range(window.horizon):
            images = window.frames[window.stack(k)].flatten(1, 2)
            hidden = self.memory(images, hidden, window.first[:, k])
            found.append(hidden)
        hidden = torch.stack(found, 1)
        reward = (self.memory["value"](hidden)[..., 0] - window.rewards).square().mean()
        return Losses({"reward": reward, "size": self.memory["policy"](hidden).square().mean()})

    def tensors(self):
        return {"memory": self.memory.state_dict()}

    def updates_due(self, agent_steps):
        return int(agent_steps > self.random_steps)

    def schedule(self, updates, agent_steps, replay):  # noqa: ARG002
        return ["all"]

    def report(self, means, updates):  # noqa: ARG002
        return {}

    def influence(self, replay, updates):  # noqa: ARG002
        return {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("ogspr.agents.methods._registered", {})
        factories = Factories(Recall, lambda _config, spec, _runner: RecallActor(Memory(spec), spec))
        register(
            MethodEntry("recall", RecallConfig, ("recall",), lambda *_: RecallConfig(), lambda: factories)
        )
        yield


def wanted(folder, **changes):
    return replace(runs.request(folder, agent=RecallConfig(), agent_steps=90, **changes), preset="recall")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    runs.train(wanted(folder))
    return folder / "seed-0"


def test_it_acts_by_what_it_remembers(unbroken):
    state = runs.final_state(unbroken)["learner"]
    assert state["updates"] == 60
    assert np.abs(state["tensors"]["carry.hidden"]).min() > 0
    assert read_rows(unbroken / "train.csv")[-1]["reward_loss"] < 0.2


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(unbroken, tmp_path):
    """Stopped in the random steps, where the episode in which they end has begun, and later."""
    for rounds in (1, 27, 4, 20):
        with pytest.raises(Stopped):
            runs.train(wanted(tmp_path), stop=StopAfter(rounds))
    runs.train(wanted(tmp_path))
    runs.assert_same_run(tmp_path / "seed-0", unbroken)


class KillAfter(StopAfter):
    """Kills the process instead."""

    @property
    def requested(self):
        if StopAfter.requested.fget(self):
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def test_a_killed_run_goes_on_as_if_nothing_had_happened(unbroken, tmp_path):
    keep, reached = KeepOptions(checkpoint_minutes=1e-9), [0]
    for rounds in (28, 9):
        child = runs.train_in_child(wanted(tmp_path, keep=keep), KillAfter(rounds))
        assert runs.exit_code(child) == -signal.SIGKILL
        progress = runs.final_state(tmp_path / "seed-0")["trainer"]["progress"]
        reached.append(progress["agent_steps"])
    assert sorted(set(reached)) == reached
    runs.train(wanted(tmp_path))
    runs.assert_same_run(tmp_path / "seed-0", unbroken)
