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
    """A trained policy, with its environment and origin."""

    def __init__(
        self, policy: Policy, spec: EnvSpec, env_options: EnvOptions, origin: dict[str, Any], seed: int
    ) -> None:
        self.policy = policy
        """Acts without internal state: you keep its carry. See `ogspr.agents.protocol.Policy`."""
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

        As in evaluation: without exploration noise, and sampled if the method samples its actions there.

        Args:
            observation: From one environment, or from N.
            first: Whether it is the first of an episode. Required only by agents that remember earlier steps.
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
            raise ValueError("this agent remembers earlier steps: pass first=True when an episode starts")
        actions, self._carry = self.policy.act(
            images, self._carry, np.broadcast_to(False if first is None else first, count), self._rng
        )
        return actions[0] if observation.ndim == 3 else actions

    def make_env(self, *, seed: int, task: str | None = None) -> Environment:
        """The environment the agent was trained in: same task, image size and action repeat.

        If the task is your own code, pass it again as `task`: this confirms that you trust it.
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
    """The policy of a run folder (`best` or `last`), or of a file written by `ogspr export`.

    `seed` is used by agents that sample their actions, as OG-SPR does on Atari. `method` is needed if the
    method is your own code: a MethodEntry, or "module:name".
    No code from the file is executed.
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
