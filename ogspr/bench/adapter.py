"""An environment of this package as a Gymnasium environment, for comparisons."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ogspr.envs import make
from ogspr.types import ContinuousActions, UInt8Array


class GymnasiumAdapter(gymnasium.Env[UInt8Array, Any]):
    """`make(task)` behind Gymnasium's interface."""

    def __init__(self, task: str) -> None:
        self._env = make(task, seed=0)
        actions = self._env.spec.actions
        self.observation_space = gymnasium.spaces.Box(0, 255, self._env.spec.observation_shape, np.uint8)
        self.action_space = (
            gymnasium.spaces.Box(-1.0, 1.0, actions.shape, np.float32)
            if isinstance(actions, ContinuousActions)
            else gymnasium.spaces.Discrete(actions.count)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[UInt8Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._env.reset().observation, {}

    def step(self, action: Any) -> tuple[UInt8Array, float, bool, bool, dict[str, Any]]:
        step = self._env.step(action)
        return step.observation, step.reward, step.terminated, step.truncated, {}

    def close(self) -> None:
        self._env.close()
