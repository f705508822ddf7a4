"""Our environments as Gymnasium's, for other people's training loops and policies."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ogspr.envs.options import EnvOptions
from ogspr.envs.protocol import Environment
from ogspr.envs.registry import make
from ogspr.errors import UserError
from ogspr.types import ActionSpec, ContinuousActions, TimeStep, UInt8Array

_FRAMES_A_SECOND = 30


class GymView(gymnasium.Env[UInt8Array, Any]):
    """One of our environments with Gymnasium's interface.

    An observation is the stack of frames, channels first, as an agent of this package sees it. `info` has the
    rest of a `TimeStep`: score, frames, lost_life, proprioception, and fault where there is one.

    Args:
        name: A task, as for `make_env`.
        seed: Decides the episodes until `reset` is given another.
        training: As for `make_env`.
        options: As for `make_env`.
        render_mode: rgb_array, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": _FRAMES_A_SECOND}  # noqa: RUF012

    def __init__(
        self,
        name: str,
        *,
        seed: int = 0,
        training: bool = False,
        options: EnvOptions | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render mode must be rgb_array or None, got {render_mode!r}.")
        self.render_mode = render_mode
        self._name, self._training, self._options = name, training, options
        self._env = self._made(seed)
        spec = self._env.spec
        self.observation_space = spaces.Box(0, 255, spec.observation_shape, np.uint8)
        self.action_space = _action_space(spec.actions)
        self._frame: UInt8Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8Array, dict[str, Any]]:
        """A new episode. With a seed, of an environment that starts again with it."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._env.close()
            self._env = self._made(seed)
        step = self._env.reset()
        return self._seen(step), _info(step)

    def step(self, action: Any) -> tuple[UInt8Array, float, bool, bool, dict[str, Any]]:
        step = self._env.step(np.asarray(action))
        return self._seen(step), step.reward, step.terminated, step.truncated, _info(step)

    def render(self) -> UInt8Array | None:
        """The newest frame, (height, width, 3)."""
        if self.render_mode is None or self._frame is None:
            return None
        image = np.moveaxis(self._frame, 0, -1)
        return np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else np.ascontiguousarray(image)

    def close(self) -> None:
        self._env.close()

    def _made(self, seed: int) -> Environment:
        return make(self._name, seed=seed, training=self._training, options=self._options)

    def _seen(self, step: TimeStep) -> UInt8Array:
        self._frame = step.observation[-self._env.spec.frame_shape[0] :]
        return step.observation


make_gym = GymView  # next to `make_env`


def _action_space(actions: ActionSpec) -> spaces.Space[Any]:
    if isinstance(actions, ContinuousActions):
        return spaces.Box(-1.0, 1.0, actions.shape, np.float32)
    return spaces.Discrete(actions.count)


def _info(step: TimeStep) -> dict[str, Any]:
    info = {
        "score": step.score,
        "frames": step.frames,
        "lost_life": step.lost_life,
        "proprioception": step.proprioception,
    }
    return info | ({"fault": step.fault} if step.fault else {})
