"""An environment of this package as a Gymnasium environment, for comparisons."""

from __future__ import annotations

from typing import Any

from ogspr.envs.gym_view import GymView
from ogspr.types import UInt8Array


class GymnasiumAdapter(GymView):
    """Without `info`, which Gymnasium's vectors would collect: what is compared is the way of a step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8Array, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {}

    def step(self, action: Any) -> tuple[UInt8Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {}
