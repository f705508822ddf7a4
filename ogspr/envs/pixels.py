"""From single frames to what the agent sees: the part that is the same for every suite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ogspr.envs.protocol import FrameSource, RawStep
from ogspr.errors import SimulationFault, SnapshotError
from ogspr.types import Action, EnvSpec, Float64Array, Snapshot, TimeStep, UInt8Array

RewardTransform = Callable[[float], float]

# A reset draws a new start state, so one that diverges says little about the next.
_RESET_ATTEMPTS = 10


def unchanged(reward: float) -> float:
    return reward


def sign(reward: float) -> float:
    """{-1, 0, +1}: the usual reward of Atari training."""
    return float(np.sign(reward))


class PixelEnvironment:
    """An `Environment` over a `FrameSource`: stacks frames, checks actions, survives faults."""

    def __init__(self, source: FrameSource, reward_transform: RewardTransform = unchanged) -> None:
        self._source = source
        self._reward_transform = reward_transform
        self._stack: UInt8Array = np.zeros(source.spec.observation_shape, np.uint8)
        self._proprioception: Float64Array = np.zeros(source.spec.proprioception_size)
        self._current: TimeStep | None = None

    @property
    def spec(self) -> EnvSpec:
        return self._source.spec

    def reset(self) -> TimeStep:
        self._current = None
        first, fault = self._first_step()
        self._stack = np.tile(first.frame, (self.spec.frame_stack, 1, 1))
        return self._arrive(first, fault)

    def step(self, action: Action) -> TimeStep:
        if self._current is None or self._current.last:
            raise RuntimeError(f"{self.spec.name}: call reset() before the first step of an episode")
        action = self.spec.actions.checked(action)
        self._current = None  # a step that raises leaves the simulator in an unknown state
        try:
            raw = self._source.step(action)
            if not math.isfinite(raw.reward):
                raise SimulationFault(f"non-finite reward {raw.reward}")
        except SimulationFault as fault:
            # The episode ends with what was last seen, and no reward.
            unseen = RawStep(self._newest_frame, truncated=True, proprioception=self._proprioception)
            return self._arrive(unseen, str(fault))
        self._stack = np.concatenate((self._stack[raw.frame.shape[0] :], raw.frame))
        return self._arrive(raw)

    def snapshot(self) -> Snapshot:
        current = self._current
        if current is None:
            raise RuntimeError(f"{self.spec.name}: call reset() before snapshot()")
        return {
            "name": self.spec.name,
            "protocol": dict(self.spec.protocol),
            "versions": dict(self.spec.versions),
            "source": self._source.state(),
            "observation": self._stack.copy(),
            "proprioception": self._proprioception.copy(),
            "reward": current.reward,
            "score": current.score,
            "terminated": current.terminated,
            "truncated": current.truncated,
            "frames": current.frames,
            "fault": current.fault,
            "lost_life": current.lost_life,
        }

    def restore(self, snapshot: Snapshot) -> TimeStep:
        _check_fits(snapshot, self.spec)
        saved = cast(dict[str, Any], snapshot)
        self._current = None
        self._source.set_state(saved["source"])
        self._stack = np.array(saved["observation"], np.uint8)
        self._proprioception = np.array(saved["proprioception"], np.float64)
        self._current = TimeStep(
            observation=self._stack.copy(),
            reward=saved["reward"],
            score=saved["score"],
            terminated=saved["terminated"],
            truncated=saved["truncated"],
            frames=saved["frames"],
            proprioception=self._proprioception.copy(),
            fault=saved["fault"],
            lost_life=saved.get("lost_life", False),  # an older run, from before this field, can be resumed
        )
        return self._current

    def close(self) -> None:
        self._current = None  # a step after this asks for a reset
        self._source.close()

    @property
    def _newest_frame(self) -> UInt8Array:
        return self._stack[-self.spec.frame_shape[0] :]

    def _first_step(self) -> tuple[RawStep, str]:
        """The first step of an episode, and how earlier attempts to begin it failed."""
        faults: list[str] = []
        while len(faults) < _RESET_ATTEMPTS:
            try:
                return self._source.reset(), "; ".join(faults)
            except SimulationFault as fault:
                faults.append(f"reset failed: {fault}")
        raise RuntimeError(f"{self.spec.name} could not be reset in {_RESET_ATTEMPTS} attempts: {faults[-1]}")

    def _arrive(self, raw: RawStep, fault: str = "") -> TimeStep:
        """Makes `raw` the current time step, its frame being the newest of the stack already."""
        self._proprioception = raw.proprioception
        # Copies: what is handed out is the caller's, and nothing the caller does to it comes back.
        self._current = TimeStep(
            observation=self._stack.copy(),
            reward=self._reward_transform(raw.reward),
            score=raw.reward,
            terminated=raw.terminated,
            truncated=raw.truncated,
            frames=raw.frames,
            proprioception=raw.proprioception.copy(),
            fault=fault,
            lost_life=raw.lost_life,
        )
        return self._current


def _check_fits(snapshot: Snapshot, spec: EnvSpec) -> None:
    if "name" not in snapshot or "source" not in snapshot:
        raise SnapshotError(f"{spec.name}: this is not an environment snapshot.")
    for key, ours in (
        ("name", spec.name),
        ("protocol", dict(spec.protocol)),
        ("versions", dict(spec.versions)),
    ):
        theirs = snapshot.get(key)
        if different := _difference(theirs, ours):
            raise SnapshotError(
                f"{spec.name}: the snapshot was taken with a different {key} ({different}); "
                "restore it with the same task, settings and library versions."
            )


def _difference(theirs: object, ours: object) -> str:
    """What is not the same, entry by entry; an entry that an older snapshot lacks counts as False."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return "" if theirs == ours else f"{theirs} instead of {ours}"
    return ", ".join(
        f"{name} {theirs.get(name, False)} instead of {ours.get(name, False)}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name, False) != ours.get(name, False)
    )
