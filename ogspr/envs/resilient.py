"""An environment that survives the death of its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.envs.worker import WorkerDied
from ogspr.types import Action, EnvSpec, Snapshot, TimeStep

T = TypeVar("T")

_MOST_DEATHS = 3  # in one episode: a worker that dies again and again has a reason


class InexactState(WorkerDied):
    """The state of a dead worker could not be rebuilt."""


class ResilientEnvironment:
    """Keeps what is needed to rebuild the same state: the start of the episode, and the actions since.

    A worker that died is replaced, and the new one is brought to where the old one was. If it does not arrive
    at the same image, the death is passed on: an inexact state is worse than a run that stops.

    Args:
        launch: Starts a worker; the same one every time.
        report: Called with every worker that was replaced.
    """

    def __init__(self, launch: Callable[[], SplitStepEnvironment], report: Callable[[str], None]) -> None:
        self._launch = launch
        self._report = report
        self._env = launch()
        self._start: Snapshot | None = None  # of the episode; None: of a fresh environment
        self._actions: list[Action] = []  # since then
        self._last: TimeStep | None = None  # what they led to
        self._pending: Action | None = None
        self._deaths = 0

    @property
    def spec(self) -> EnvSpec:
        return self._with_retry(lambda: self._env.spec)

    def reset(self) -> TimeStep:
        first, snapshot = self._with_retry(lambda: (self._env.reset(), self._env.snapshot()))
        return self._begin(first, snapshot)

    def step(self, action: Action) -> TimeStep:
        self.begin_step(action)
        return self.finish_step()

    def begin_step(self, action: Action) -> None:
        self._with_retry(lambda: self._env.begin_step(action))
        self._pending = action

    def step_ready(self) -> bool:
        return self._env.step_ready()

    def finish_step(self) -> TimeStep:
        if self._pending is None:
            return self._env.finish_step()  # says what is wrong
        action = self._pending
        try:
            step = self._env.finish_step()
        except WorkerDied as death:
            self._replace_worker(death)
            step = self._with_retry(lambda: self._env.step(action))
        self._actions.append(action)
        self._last, self._pending = step, None
        return step

    def snapshot(self) -> Snapshot:
        return self._with_retry(lambda: self._env.snapshot())  # noqa: PLW0108 (another worker, perhaps)

    def restore(self, snapshot: Snapshot) -> TimeStep:
        return self._begin(self._with_retry(lambda: self._env.restore(snapshot)), snapshot)

    def ask_to_close(self) -> None:
        self._env.ask_to_close()

    def close(self) -> None:
        self._env.close()

    def _begin(self, first: TimeStep, snapshot: Snapshot) -> TimeStep:
        self._start, self._actions, self._last, self._pending, self._deaths = snapshot, [], first, None, 0
        return first

    def _with_retry(self, request: Callable[[], T]) -> T:
        while True:
            try:
                return request()
            except WorkerDied as death:
                self._replace_worker(death)

    def _replace_worker(self, death: WorkerDied) -> None:
        while True:
            self._deaths += 1
            if self._deaths > _MOST_DEATHS:
                raise death
            try:
                self._bring_back()
            except InexactState:
                raise
            except WorkerDied as again:
                death = again
            else:
                self._report(f"{death} A new one continues from the same state.")
                return

    def _bring_back(self) -> None:
        self._env.close()
        self._env = self._launch()
        step = self._env.restore(self._start) if self._start is not None else None
        for action in self._actions:
            step = self._env.step(action)
        if not _same(step, self._last):
            name = self._env.spec.name
            raise InexactState(f"{name}: the worker died, and a new one did not reach its state.")


def _same(step: TimeStep | None, other: TimeStep | None) -> bool:
    if step is None or other is None:
        return step is other
    same_ending = _ending(step) == _ending(other)
    return same_ending and step.reward == other.reward and np.array_equal(step.observation, other.observation)


def _ending(step: TimeStep) -> tuple[bool, bool, bool]:
    return step.terminated, step.truncated, step.lost_life
