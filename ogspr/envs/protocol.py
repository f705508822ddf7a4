"""The two interfaces of this package: what an agent uses, and what a suite provides.

A suite implements `FrameSource`: single frames, raw rewards. `PixelEnvironment` turns any source
into an `Environment`: stacked observations, checked actions, faults as truncations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from ogspr.types import Action, EnvSpec, Float64Array, Snapshot, TimeStep, UInt8Array


@runtime_checkable
class Environment(Protocol):
    """One environment as the agent sees it. `step` after the last step of an episode is an error."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self) -> TimeStep: ...

    def step(self, action: Action) -> TimeStep: ...

    def snapshot(self) -> Snapshot:
        """The complete state: once restored, the environment continues as if nothing had happened."""
        ...

    def restore(self, snapshot: Snapshot) -> TimeStep:
        """Continues from a snapshot; returns the time step that was current when it was taken."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class SplitStepEnvironment(Environment, Protocol):
    """An environment whose step can be started, run in parallel with other work, and be finished later."""

    def begin_step(self, action: Action) -> None: ...

    def step_ready(self) -> bool:
        """Whether `finish_step` would not have to wait for anybody."""
        ...

    def finish_step(self) -> TimeStep: ...

    def ask_to_close(self) -> None:
        """Begins to close, so that several can do so side by side; `close` waits for the end."""
        ...


@dataclass(frozen=True, slots=True)
class RawStep:
    """One agent step of a suite: a single frame and the unchanged reward."""

    frame: UInt8Array  # (channels, height, width)
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    frames: int = 0
    proprioception: Float64Array = field(default_factory=lambda: np.zeros(0))
    lost_life: bool = False


class FrameSource(Protocol):
    """What a suite provides. `step` raises SimulationFault when the simulator lost its state."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self) -> RawStep: ...

    def step(self, action: Action) -> RawStep: ...

    def state(self) -> Snapshot: ...

    def set_state(self, state: Snapshot) -> None: ...

    def close(self) -> None: ...
