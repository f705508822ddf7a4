"""What is probed: episodes of a trained policy, and the frozen representations of trained runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ogspr.agents.acting import FrozenRepresentation
from ogspr.agents.agent import make_representation
from ogspr.agents.protocol import Policy
from ogspr.device import Device
from ogspr.envs import SplitStepEnvironment
from ogspr.errors import UserError
from ogspr.training.episodes import EpisodeDriver, in_turn
from ogspr.training.saved_run import SavedRun
from ogspr.training.state_file import as_tensors
from ogspr.types import Action, EnvSpec, Float64Array, TimeStep, UInt8Array


@dataclass(frozen=True)
class Recording:
    """One episode of T steps, every frame once."""

    frames: UInt8Array  # (S + T - 1, C, H, W): all of the first observation, of later ones the newest
    actions: Action  # (T, ...) as the environment takes them
    proprioception: Float64Array  # (T + 1, P)
    score: float

    def __len__(self) -> int:
        return len(self.actions)

    def observations(self, first: int, end: int) -> UInt8Array:
        """The stacks s_first .. s_{end - 1}: (N, S * C, H, W)."""
        stack = len(self.frames) - len(self) + 1
        rows = np.arange(first, end)[:, None] + np.arange(stack)
        channels, height, width = self.frames.shape[1:]
        stacks: UInt8Array = self.frames[rows].reshape(len(rows), stack * channels, height, width)
        return stacks


def record(
    policy: Policy,
    environments: Sequence[SplitStepEnvironment],
    episodes: int,
    report: Callable[[int], None] = lambda _over: None,
) -> list[Recording]:
    """Plays whole episodes side by side, in an order that does not depend on who was first.

    An episode whose simulator failed at its first step is empty, and is dropped.

    Args:
        policy: Acts for all environments at once, as in evaluation.
        environments: They share the episodes out in turn.
        episodes: How many, at least as many as environments.
        report: Called after every step with the number of finished episodes.
    """
    tapes = [_Tape(env.spec) for env in environments]

    def listen(place: int, action: Action | None, step: TimeStep) -> None:
        tapes[place].add(action, step)

    driver = EpisodeDriver(policy, environments, listen)
    for _ in driver.steps(episodes, np.random.default_rng(0)):
        report(driver.episodes_over)
    return [recording for recording in in_turn([tape.done for tape in tapes]) if len(recording)]


class Stage:
    """Environments on which one policy after the other plays; all find them in the same state.

    Args:
        environments: Fresh ones of a task that provides a state besides its images, else a UserError.
    """

    def __init__(self, environments: Sequence[SplitStepEnvironment]) -> None:
        self._environments = environments
        self.spec: EnvSpec = environments[0].spec  # waits until it is built
        if not self.spec.proprioception_size:
            raise UserError(
                f"{self.spec.name} provides no state besides its images, so there is nothing to predict; "
                "probing works for dmc:<domain>-<task>."
            )
        for env in environments:
            env.reset()
        self._starts = [env.snapshot() for env in environments]

    def play(
        self, policy: Policy, episodes: int, report: Callable[[int], None] = lambda _over: None
    ) -> list[Recording]:
        """Episodes that begin alike for every policy; see `record`."""
        for env, start in zip(self._environments, self._starts, strict=True):
            env.restore(start)
        return record(policy, self._environments, episodes, report)


class _Tape:
    """Records what happens in one environment."""

    def __init__(self, spec: EnvSpec) -> None:
        self.done: list[Recording] = []
        self._spec = spec
        self._frames: list[UInt8Array] = []
        self._actions: list[Action] = []
        self._proprioception: list[Float64Array] = []
        self._score = 0.0

    def add(self, action: Action | None, step: TimeStep) -> None:
        spec = self._spec
        if action is None:
            self._frames = list(step.observation.reshape(spec.frame_stack, *spec.frame_shape))
            self._actions, self._proprioception, self._score = [], [step.proprioception], 0.0
            return
        self._actions.append(action)
        self._frames.append(step.observation[-spec.frame_shape[0] :])
        self._proprioception.append(step.proprioception)
        self._score += step.score
        if step.last:
            self.done.append(self._recording(step))

    def _recording(self, last: TimeStep) -> Recording:
        # If the simulator failed, the state that the last action led to is not known.
        steps = len(self._actions) - bool(last.fault)
        return Recording(
            frames=np.stack(self._frames[: self._spec.frame_stack + steps - 1]),
            actions=np.array(self._actions[:steps]),
            proprioception=np.stack(self._proprioception[: steps + 1]),
            score=self._score,
        )


# --- representations -----------------------------------------------------------------------------------


def learned_representation(run: SavedRun, spec: EnvSpec, device: Device) -> FrozenRepresentation:
    """Frozen, as it is in the checkpoint; a UserError where that is of other networks."""
    try:
        tensors = as_tensors(run.checkpoint.state()["learner"]["tensors"])
        found = make_representation(run.options.agent, spec, tensors, device=device)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.checkpoint.path} does not fit the settings of its run: {error}; probe another run."
        ) from None
    if found is None:
        raise UserError(
            f"{run.path}: the method {run.config.method} has no representation to probe; "
            "it can collect for others (--collectors)."
        )
    return found
