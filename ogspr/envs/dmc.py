"""DeepMind Control Suite from pixels, and its exact state.

Frames are rendered by `mujoco.Renderer`, which gives the pixels of dm_control's own
`physics.render` several times faster. Rewards are dm_control's, added over the action repeat.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ogspr.envs import gl
from ogspr.envs.options import EnvOptions
from ogspr.envs.protocol import RawStep
from ogspr.envs.tasks import dmc_tasks
from ogspr.errors import SimulationFault, UserError, unknown
from ogspr.types import Action, ContinuousActions, EnvSpec, Float64Array, Saved, Snapshot, UInt8Array

# Without dependencies because of Python 3.13; pyproject.toml says more.
INSTALL_COMMAND = "pip install --no-deps 'dm_control>=1.0.50,<1.1'"
_QUADRUPED_CAMERA = 2  # camera 0 of the quadruped looks from far away
_EPISODE_CONTROL_STEPS = 1000  # for the suite's few tasks that set no time limit of their own
_UNBOUNDED = 1e6  # lqr's actuators are "bounded" by 1e10

# The model arrays that tasks of the suite change when an episode begins, or draw at random when they
# are loaded (lqr); a test over all tasks checks that there are no others.
EPISODE_MODEL_FIELDS = (
    "body_pos",
    "body_quat",
    "dof_damping",
    "geom_pos",
    "geom_rgba",
    "geom_size",
    "hfield_data",
    "jnt_stiffness",
    "light_pos",
    "site_pos",
    "site_rgba",
    "site_size",
    "wrap_prm",
)


def check(name: str, options: EnvOptions) -> None:
    """A UserError where `dmc:<domain>-<task>` cannot be made, as far as that is known without MuJoCo."""
    options.refuse_except("dmc", "image_size", "frame_stack", "action_repeat", "camera", "shadows")
    known = [task.name for task in dmc_tasks()]
    if name not in known:
        raise unknown("dmc task", name, known, hint="`ogspr tasks dmc` lists them.", prefix="dmc:")
    if find_spec("dm_control") is None:
        raise UserError(f"DeepMind Control needs the package dm_control: {INSTALL_COMMAND}.")


def make_source(name: str, seed: int, options: EnvOptions) -> DmcSource:
    """The frame source for `dmc:<domain>-<task>`."""
    check(name, options)
    backend = gl.activate()
    domain, _, task = name.partition("-")
    return DmcSource(domain, task, seed=seed, options=options, gl_renderer=backend.renderer)


class DmcSource:
    """One task of the suite as a `FrameSource`."""

    def __init__(self, domain: str, task: str, *, seed: int, options: EnvOptions, gl_renderer: str) -> None:
        # Only now: MUJOCO_GL is read once, when these are imported.
        import mujoco
        from dm_control import suite
        from dm_control.rl.control import PhysicsError

        from ogspr.envs.dmc_frames import FrameRenderer

        # Deprecation notices about the suite's own XML files are no business of our users.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self._physics_error = PhysicsError
        self._env = suite.load(domain, task, task_kwargs={"random": seed})
        self._action_repeat = options.action_repeat or 2
        if math.isinf(self._env._step_limit):
            self._env._step_limit = _EPISODE_CONTROL_STEPS
        self._scale_action = _action_scaling(self._env.action_spec())
        camera = camera_for(domain, options.camera, self._env.physics.model.ncam)
        shadows = options.shadows is not False
        self._renderer = FrameRenderer(self._env.physics, options.image_size, camera, shadows=shadows)
        proprioception = self._env.observation_spec().values()
        frame_stack = options.frame_stack or 3
        self.spec = EnvSpec(
            name=f"dmc:{domain}-{task}",
            frame_shape=(3, options.image_size, options.image_size),
            frame_stack=frame_stack,
            actions=ContinuousActions(self._env.action_spec().shape[0]),
            action_repeat=self._action_repeat,
            episode_steps=math.ceil(self._env._step_limit / self._action_repeat),
            proprioception_size=sum(math.prod(part.shape) for part in proprioception),
            protocol={
                "suite": "dmc",
                "action_repeat": self._action_repeat,
                "camera": camera,
                "image_size": options.image_size,
                "frame_stack": frame_stack,
                # Named only where it is not as usual: runs from before there was a choice stay comparable.
                **({} if shadows else {"shadows": False}),
            },
            versions={
                "dm_control": version("dm_control"),
                "mujoco": mujoco.__version__,
            },
            renderer=gl_renderer,
        )

    def reset(self) -> RawStep:
        with self._divergence_as_fault():
            step = self._env.reset()
        return RawStep(frame=self.draw(), proprioception=_flat(step.observation))

    def step(self, action: Action) -> RawStep:
        control = self._scale_action(action)
        reward, frames = 0.0, 0
        with self._divergence_as_fault():
            for _ in range(self._action_repeat):
                step = self._env.step(control)
                reward += float(step.reward)
                frames += 1
                if step.last():
                    break
        return RawStep(
            frame=self.draw(),
            reward=reward,
            terminated=step.last() and step.discount == 0.0,
            truncated=step.last() and step.discount != 0.0,
            frames=frames,
            proprioception=_flat(step.observation),
        )

    def draw(self) -> UInt8Array:
        """The frame of the current state."""
        return self._renderer.draw()

    def state(self) -> Snapshot:
        import mujoco

        model, data, task = self._model, self._env.physics.data.ptr, self._env.task
        integration: Float64Array = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(model, data, integration, mujoco.mjtState.mjSTATE_INTEGRATION)
        kind, keys, position, has_gauss, gauss = task.random.get_state()
        return {
            "integration": integration,
            "random": [kind, keys, int(position), int(has_gauss), float(gauss)],
            "task": {key: _saved(value) for key, value in vars(task).items() if key != "_random"},
            "model": {name: getattr(model, name).copy() for name in EPISODE_MODEL_FIELDS},
            "step_count": self._env._step_count,
            "reset_next_step": self._env._reset_next_step,
        }

    def set_state(self, state: Snapshot) -> None:
        import mujoco

        saved = cast(dict[str, Any], state)
        model, data, task = self._model, self._env.physics.data.ptr, self._env.task
        for name, value in saved["model"].items():
            getattr(model, name)[:] = value
        self._renderer.upload_height_fields()
        mujoco.mj_setState(model, data, saved["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
        # dm_control leaves every step with positions and sensors up to date (its "legacy step").
        mujoco.mj_step1(model, data)
        for key, value in saved["task"].items():
            setattr(task, key, _saved(value))  # a copy: the snapshot is the caller's
        task.random.set_state(tuple(saved["random"]))
        self._env._step_count = saved["step_count"]
        self._env._reset_next_step = saved["reset_next_step"]

    def close(self) -> None:
        self._renderer.close()

    @property
    def _model(self) -> Any:
        return self._env.physics.model.ptr

    @contextlib.contextmanager
    def _divergence_as_fault(self) -> Iterator[None]:
        try:
            yield
        except self._physics_error as error:
            raise SimulationFault(f"PhysicsError: {' '.join(str(error).split())}") from error


def camera_for(domain: str, asked: int | None, count: int) -> int:
    """The camera rule: what was asked for, else 0, for the quadruped 2."""
    camera = asked if asked is not None else _QUADRUPED_CAMERA if domain == "quadruped" else 0
    if camera >= count:
        raise UserError(f"dmc domain {domain} has cameras 0 to {count - 1}, got {camera}.")
    return camera


def _action_scaling(native: Any) -> Callable[[Action], Float64Array]:
    """The map from [-1, 1] to the actuators' bounds; exactly the identity where those are +-1."""
    low, high = native.minimum, native.maximum
    unit = (low == -1.0) & (high == 1.0)
    unbounded = (low < -_UNBOUNDED) | (high > _UNBOUNDED)
    if bool((unit | unbounded).all()):
        return lambda action: np.asarray(action, np.float64)
    return lambda action: low + 0.5 * (np.asarray(action, np.float64) + 1.0) * (high - low)


def _flat(observation: Mapping[str, Any]) -> Float64Array:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)


def _saved(value: Any) -> Saved:
    """A task attribute as something that can be stored; fails loudly on a type it does not know."""
    if isinstance(value, np.generic):
        return cast(Saved, value.item())
    if isinstance(value, np.ndarray):
        return cast(npt.NDArray[Any], value.copy())
    if isinstance(value, list | tuple):
        return [_saved(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a dm_control task holds a {type(value).__name__}, which cannot be saved")
