"""Any Gymnasium environment that shows images: its own observation, or what it renders."""

from __future__ import annotations

import importlib
import logging
import zlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ogspr.envs import gl
from ogspr.envs.options import EnvOptions
from ogspr.envs.protocol import RawStep
from ogspr.envs.trust import trust
from ogspr.errors import SnapshotError, UserError, unknown
from ogspr.types import (
    Action,
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    EnvSpec,
    Snapshot,
    UInt8Array,
)


def check(_env_id: str, options: EnvOptions) -> None:
    """A UserError where the options have no meaning; which ids there are, only Gymnasium knows."""
    options.refuse_except("gymnasium", "image_size", "frame_stack", "action_repeat")


def names_module(env_id: str) -> bool:
    """Whether it is Gymnasium's `module:id`: that module is imported, and registers the environment."""
    return ":" in env_id


def make_source(env_id: str, seed: int, options: EnvOptions) -> GymnasiumSource:
    """The frame source for `gym:<id>`."""
    import gymnasium

    module, _, registered_id = env_id.rpartition(":")
    try:
        if names_module(env_id):
            _import(module, env_id)
        registered = gymnasium.spec(registered_id)
    except gymnasium.error.Error:
        hint = "Atari games are atari:<Game>." if registered_id.startswith("ALE/") else ""
        raise unknown("Gymnasium environment", env_id, gymnasium.registry, hint, prefix="gym:") from None
    except ModuleNotFoundError as error:
        raise UserError(f"gym:{env_id}: the module {error.name} is not installed.") from None
    backend = gl.activate() if "mujoco" in str(registered.entry_point) else None
    if backend is not None:
        _show_mujoco_warnings()
    return GymnasiumSource(f"gym:{env_id}", _make_rendering(env_id), seed, options, backend)


def _import(module: str, env_id: str) -> None:
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UserError(
            f"gym:{env_id}: '{module}' is not a module; expected gym:<id> or gym:<module.path>:<id>."
        )
    trust(parts[0])
    importlib.import_module(module)


def _show_mujoco_warnings() -> None:
    """Else MuJoCo appends them to MUJOCO_LOG.TXT in the current folder, which may be a link there."""
    import mujoco

    mujoco.set_mju_user_warning(lambda message: logging.getLogger("mujoco").warning("MuJoCo: %s", message))


def _make_rendering(env_id: str) -> Any:
    """The environment with rendering on, where it can render."""
    import gymnasium

    try:
        try:
            return gymnasium.make(env_id, render_mode="rgb_array", disable_env_checker=True)
        except (TypeError, gymnasium.error.Error) as error:
            if isinstance(error, gymnasium.error.DependencyNotInstalled):
                raise
            return gymnasium.make(env_id, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"gym:{env_id} cannot be made: {' '.join(str(error).split())}") from None


class GymnasiumSource:
    """A Gymnasium environment as a `FrameSource`.

    Gymnasium has no notion of saving an environment's state. Every episode here starts with a seed of
    its own, so the state is that seed and the actions since; restoring plays them again and checks
    that the same images and rewards come out.
    """

    def __init__(
        self,
        name: str,
        env: Any,
        seed: int,
        options: EnvOptions,
        mujoco_backend: gl.Backend | None = None,  # what draws, where it is known to be MuJoCo
    ) -> None:
        check(name, options)
        self._name = name
        self._env = env
        self._seed = seed
        self._episode = -1
        self._actions: list[Action] = []
        self._action_repeat = options.action_repeat or 1
        self._image_size = options.image_size
        self._native_action, actions = _action_conversion(name, env.action_space)
        self._picture = _picture_reader(name, env)
        self._last_frame = self._first_picture()
        self._checksum = 0
        limit = getattr(env.spec, "max_episode_steps", None)
        channels = self._last_frame.shape[0]
        frame_stack = options.frame_stack or (4 if channels == 1 else 3)
        libraries = {"gymnasium": "gymnasium", "opencv": "opencv-python-headless"}
        if mujoco_backend is not None:
            libraries["mujoco"] = "mujoco"
        self.spec = EnvSpec(
            name=name,
            frame_shape=(channels, options.image_size, options.image_size),
            frame_stack=frame_stack,
            actions=actions,
            action_repeat=self._action_repeat,
            episode_steps=None if limit is None else -(-limit // self._action_repeat),
            protocol={
                "suite": "gymnasium",
                "action_repeat": self._action_repeat,
                "image_size": options.image_size,
                "frame_stack": frame_stack,
            },
            versions={library: version(package) for library, package in libraries.items()},
            renderer="" if mujoco_backend is None else mujoco_backend.renderer,
        )

    def reset(self) -> RawStep:
        self._begin_episode(self._episode + 1)
        return RawStep(frame=self._last_frame)

    def step(self, action: Action) -> RawStep:
        self._actions.append(action)
        reward, frames = 0.0, 0
        for _ in range(self._action_repeat):
            observation, step_reward, terminated, truncated, _ = self._env.step(self._native_action(action))
            reward += float(step_reward)
            frames += 1
            if terminated or truncated:
                break
        self._see(observation, reward)
        return RawStep(
            frame=self._last_frame,
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated) and not terminated,
            frames=frames,
        )

    def state(self) -> Snapshot:
        shape = (len(self._actions), *self.spec.actions.shape)
        return {
            "seed": self._seed,
            "episode": self._episode,
            "actions": np.array(self._actions, self.spec.actions.dtype).reshape(shape),
            "checksum": self._checksum,
        }

    def set_state(self, state: Snapshot) -> None:
        saved = cast(dict[str, Any], state)
        self._seed = saved["seed"]
        self._begin_episode(saved["episode"])
        for action in saved["actions"]:
            self.step(np.asarray(action))
        if self._checksum != saved["checksum"]:
            raise SnapshotError(
                f"{self.spec.name} is not deterministic: the same seed and actions led to other "
                "images or rewards, so its state cannot be restored. "
                "Take all of its randomness from self.np_random."
            )

    def close(self) -> None:
        self._env.close()

    def _begin_episode(self, episode: int) -> None:
        self._episode = episode
        self._actions = []
        self._checksum = 0
        observation, _ = self._env.reset(seed=self._episode_seed(episode))
        self._see(observation, 0.0)

    def _see(self, observation: Any, reward: float) -> None:
        self._last_frame = self._resized(observation)
        seen = self._last_frame.tobytes() + np.float64(reward).tobytes()
        self._checksum = zlib.crc32(seen, self._checksum)

    def _first_picture(self) -> UInt8Array:
        """Tries out reset and drawing, which for many environments need a library of their own."""
        from gymnasium.error import DependencyNotInstalled

        try:
            observation, _ = self._env.reset(seed=self._episode_seed(0))
            return self._resized(observation)
        except (DependencyNotInstalled, ImportError) as error:
            raise UserError(f"{self._name} cannot be rendered: {' '.join(str(error).split())}") from None

    def _episode_seed(self, episode: int) -> int:
        words = np.random.SeedSequence(self._seed, spawn_key=(episode,)).generate_state(1)
        return int(words[0] >> 1)

    def _resized(self, observation: Any) -> UInt8Array:
        import cv2

        picture = _checked_picture(self._name, self._picture(observation))
        size = (self._image_size, self._image_size)
        if picture.shape[:2] != size:
            picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        return np.ascontiguousarray(np.atleast_3d(picture).transpose(2, 0, 1))


def _action_conversion(name: str, space: Any) -> tuple[Callable[[Action], Any], ActionSpec]:
    """How an agent's action becomes the environment's own, and the space the agent sees."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda action: start + int(action), DiscreteActions(int(space.n))
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise UserError(
            f"{name}: action space {space} cannot be used; "
            "expected Discrete, or a Box of floats. Wrap the environment to offer one of these."
        )
    low, high = space.low, space.high
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"{name}: the action space has infinite bounds; wrap the environment in one that has finite ones."
        )

    def scaled(action: Action) -> npt.NDArray[Any]:
        fraction = 0.5 * (action.reshape(low.shape).astype(np.float64) + 1.0)
        native: npt.NDArray[Any] = (low + fraction * (high - low)).astype(space.dtype)
        inside: npt.NDArray[Any] = np.clip(native, low, high)  # rounding may lead out of the box
        return inside

    return scaled, ContinuousActions(int(np.prod(low.shape)))


def _picture_reader(name: str, env: Any) -> Callable[[Any], npt.NDArray[Any]]:
    """From an observation to an (H, W) or (H, W, 3) image."""
    from gymnasium import spaces

    space = env.observation_space
    is_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8
    if is_bytes and (len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[-1] in (1, 3))):
        shape = space.shape
        return lambda observation: _declared(name, np.asarray(observation), shape)
    if env.render_mode == "rgb_array":
        return lambda _observation: np.asarray(env.render())
    raise UserError(
        f"{name}: observation space {space} is not an image and the environment does not render one; "
        'expected a uint8 Box (height, width) or (height, width, 1 or 3), or render_mode="rgb_array".'
    )


def _declared(name: str, picture: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if picture.shape != shape:
        raise UserError(f"{name} returned an image of shape {picture.shape}; its space says {shape}.")
    return picture


def _checked_picture(name: str, picture: npt.NDArray[Any]) -> UInt8Array:
    """Anything but bytes would be cut down silently: 0.5 to black, 300 to 44."""
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3):
        raise UserError(
            f"{name} returned an image of type {picture.dtype} and shape {picture.shape}; "
            "expected uint8, (height, width) or (height, width, channels)."
        )
    return picture
