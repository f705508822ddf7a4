"""Trained policies in Python: `agent = ogspr.load(path); action = agent.act(observation)`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ogspr.envs import Environment, EnvOptions, make, trusted_task
from ogspr.types import Action, EnvSpec, UInt8Array

if TYPE_CHECKING:
    from ogspr.agents.protocol import Policy


class TrainedAgent:
    """A policy with what is known about it."""

    def __init__(
        self, policy: Policy, spec: EnvSpec, env_options: EnvOptions, origin: dict[str, Any], seed: int
    ) -> None:
        self._policy = policy
        self._rng = np.random.default_rng(seed)
        self._env_options = env_options
        self.spec = spec
        """The environment it was trained in."""
        self.origin = origin
        """Task, seed, agent steps, score."""

    def act(self, observation: UInt8Array) -> Action:
        """The action for one observation (C, H, W) uint8, or one for each of (N, C, H, W).

        As in evaluation: without noise, and where the method draws its actions there, drawn.
        """
        if observation.dtype != "uint8" or observation.shape[-3:] != self.spec.observation_shape:
            raise ValueError(
                f"expected bytes of shape {self.spec.observation_shape}, or several of them, "
                f"got {observation.dtype} {observation.shape}"
            )
        return self._policy.act(observation, self._rng)

    def make_env(self, *, seed: int, task: str | None = None) -> Environment:
        """An environment as the agent knows it: its task, pictures of its size, actions held as long.

        A task that is code of your own has to be named once more, as `task`: that says that you trust it.
        """
        trusted = trusted_task(str(self.origin["task"]), task, "the agent", "make_env(seed=0, task='{}')")
        return make(trusted, seed=seed, options=self._env_options)

    def __repr__(self) -> str:
        return f"TrainedAgent({self.origin})"


def load(path: str | Path, *, policy: str = "best", device: str = "cpu", seed: int = 0) -> TrainedAgent:
    """The policy of a run's folder (`best` or `last`), or of a file that `ogspr export` wrote.

    `seed` is for agents that draw their actions, as OG-SPR's do on Atari.
    Executes nothing that is in the file.
    """
    import torch

    from ogspr.train.execution import Execution
    from ogspr.train.policy_file import find_policy, load_policy

    saved = load_policy(find_policy(Path(path), policy))
    # As it is written: who acts step by step does not want to wait for a compiler.
    made = saved.made(torch.device(device), Execution("eager", "fp32"))
    return TrainedAgent(made, saved.spec, saved.env_options, saved.origin, seed)
