"""Trained policies in Python: `agent = ogspr.load(path); action = agent.act(observation)`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ogspr.envs import Environment, EnvOptions, make, trusted_task
from ogspr.types import Action, BoolArray, EnvSpec, UInt8Array

if TYPE_CHECKING:
    from ogspr.agents.methods import MethodEntry
    from ogspr.agents.protocol import Policy


class TrainedAgent:
    """A policy with what is known about it."""

    def __init__(
        self, policy: Policy, spec: EnvSpec, env_options: EnvOptions, origin: dict[str, Any], seed: int
    ) -> None:
        self.policy = policy
        """Acts without any memory of its own: you keep its carry. See `ogspr.agents.protocol.Policy`."""
        self.spec = spec
        """The environment it was trained in."""
        self.origin = origin
        """Task, seed, agent steps, score."""
        self._rng = np.random.default_rng(seed)
        self._env_options = env_options
        self._carry = policy.initial_carry(1)
        self._count = 1  # environments that the carry belongs to

    def act(self, observation: UInt8Array, *, first: bool | BoolArray | None = None) -> Action:
        """The action for one observation (C, H, W) uint8, or one for each of (N, C, H, W).

        As in evaluation: without noise, and where the method draws its actions there, drawn.

        Args:
            observation: Of one environment, or of N.
            first: Whether it is the first of an episode. Only agents that remember earlier steps need it.
        """
        if observation.dtype != "uint8" or observation.shape[-3:] != self.spec.observation_shape:
            raise ValueError(
                f"expected bytes of shape {self.spec.observation_shape}, or several of them, "
                f"got {observation.dtype} {observation.shape}"
            )
        images = observation[None] if observation.ndim == 3 else observation
        count = len(images)
        if self._count != count:
            self._carry, self._count = self.policy.initial_carry(count), count
        if self._carry and first is None:
            raise ValueError("this agent remembers earlier steps: pass first=True where an episode begins")
        actions, self._carry = self.policy.act(
            images, self._carry, np.broadcast_to(False if first is None else first, count), self._rng
        )
        return actions[0] if observation.ndim == 3 else actions

    def make_env(self, *, seed: int, task: str | None = None) -> Environment:
        """An environment as the agent knows it: its task, pictures of its size, actions held as long.

        A task that is code of your own has to be named once more, as `task`: that says that you trust it.
        """
        trusted = trusted_task(str(self.origin["task"]), task, "the agent", "make_env(seed=0, task='{}')")
        return make(trusted, seed=seed, options=self._env_options)

    def __repr__(self) -> str:
        return f"TrainedAgent({self.origin})"


def load(
    path: str | Path,
    *,
    policy: str = "best",
    device: str = "cpu",
    seed: int = 0,
    method: MethodEntry | str | None = None,
) -> TrainedAgent:
    """The policy of a run's folder (`best` or `last`), or of a file that `ogspr export` wrote.

    `seed` is for agents that draw their actions, as OG-SPR's do on Atari. `method` is for those of a method
    of your own: a MethodEntry, or where one is, "module:name".
    Executes nothing that is in the file.
    """
    import torch

    from ogspr.device import Device
    from ogspr.training.options import Execution
    from ogspr.training.own_method import registered
    from ogspr.training.policy_file import find_policy, load_policy

    if method is not None:
        registered(method)
    saved = load_policy(find_policy(Path(path), policy))
    # Not compiled: a program that acts step by step does not want to wait for a compiler.
    built = saved.build(Device(torch.device(device)), Execution("eager", "fp32"))
    return TrainedAgent(built, saved.spec, saved.env_options, saved.origin, seed)
