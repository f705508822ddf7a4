"""The records that cross module borders.

Nothing here computes: these are the words that environments, replay, agents and records share.
Environments speak numpy, learners torch; an observation is channels-first uint8, as it is stored and as
networks read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # environment workers read this file too, and do without torch
    from torch import Tensor

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Action: TypeAlias = npt.NDArray[Any]
Reduction = Literal["mean", "sum"]
"""How errors become one number."""

# What a saved state may consist of: JSON values and arrays, so that it can be written to disk
# and read back without executing anything.
Saved: TypeAlias = "bool | int | float | str | npt.NDArray[Any] | list[Saved] | dict[str, Saved] | None"
Snapshot: TypeAlias = "dict[str, Saved]"

# Where the frames of a replay lie: next to the networks, or in main memory, where the GPU reads them.
Place = Literal["device", "pinned"]


@dataclass(frozen=True)
class ContinuousActions:
    """A vector of `size` numbers, each in [-1, 1]; the environment scales them to its own bounds."""

    size: int

    @property
    def vector_size(self) -> int:
        """Numbers in an action as learners see it."""
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def sample(self, rng: np.random.Generator) -> Action:
        return rng.uniform(-1.0, 1.0, self.size).astype(np.float32)

    def checked(self, action: npt.ArrayLike) -> Action:
        """A copy of the action as an array of this space; ValueError where it is not one."""
        array = np.array(action, dtype=np.float32)
        if array.shape != self.shape:
            raise ValueError(f"expected an action of shape {self.shape}, got {array.shape}")
        # Written so that NaN fails too. A rounding error beyond the bound is not a mistake.
        if not bool((np.abs(array) <= 1.0 + 1e-6).all()):
            raise ValueError(f"expected action values in [-1, 1], got {array}")
        return array

    def __str__(self) -> str:
        return f"{self.size} continuous"


@dataclass(frozen=True)
class DiscreteActions:
    """One of `count` actions, as its index."""

    count: int

    @property
    def vector_size(self) -> int:
        """Numbers in an action as learners see it: one-hot."""
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    def sample(self, rng: np.random.Generator) -> Action:
        return np.asarray(rng.integers(self.count))

    def checked(self, action: npt.ArrayLike) -> Action:
        """A copy of the action as a 0-d integer array; ValueError if it is not an index of this space."""
        array = np.asarray(action)
        if array.shape != () or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"expected one integer action, got {array.dtype} of shape {array.shape}")
        if not 0 <= int(array) < self.count:
            raise ValueError(f"expected an action index in 0..{self.count - 1}, got {int(array)}")
        return array.astype(np.int64)

    def __str__(self) -> str:
        return f"{self.count} discrete"


ActionSpec: TypeAlias = ContinuousActions | DiscreteActions


@dataclass(frozen=True)
class EnvSpec:
    """What an environment gives and takes, and every setting that decides what its scores mean."""

    name: str
    frame_shape: tuple[int, int, int]  # (channels, height, width) of one frame
    frame_stack: int
    actions: ActionSpec
    action_repeat: int  # simulator frames for which an action is held, at most
    episode_steps: int | None  # agent steps until truncation, at most; None: the environment decides
    proprioception_size: int = 0
    protocol: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # libraries the simulation depends on
    renderer: str = ""  # what draws, where it is not one of those: pixels may depend on it too

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.frame_shape
        return (channels * self.frame_stack, height, width)


@dataclass(frozen=True, slots=True)
class TimeStep:
    """What the agent gets back from one agent step (or from a reset, with reward 0)."""

    observation: UInt8Array  # (frame_stack * channels, height, width); the newest frame is last
    reward: float  # what the learner sees: the sign of the score in Atari training
    score: float  # what is reported: the true reward of the step
    terminated: bool  # the task ended here: no bootstrap
    truncated: bool  # the episode was cut off here, the task would have continued
    frames: int  # simulator frames this step took
    proprioception: Float64Array  # the task's own observation vector, empty where there is none
    fault: str = ""  # how the simulator failed: at this step, or at earlier attempts of this reset
    lost_life: bool = False  # if the learner should see it; the episode continues

    @property
    def last(self) -> bool:
        return self.terminated or self.truncated

    @property
    def terminal(self) -> bool:
        """Nothing beyond this step counts for a learner: no bootstrap, although the episode may continue."""
        return self.terminated or self.lost_life

    @property
    def ending(self) -> str:
        """How the episode ends with this step, where it does."""
        return "terminated" if self.terminated else "truncated" if self.truncated else ""


@dataclass(frozen=True)
class Episode:
    """One whole episode, in sums."""

    score: float
    agent_steps: int
    frames: int
    ended: str  # terminated or truncated
    fault: str  # how the simulator failed, if it did


class Draw(NamedTuple):
    """Which windows to draw from replay."""

    batch: int
    horizon: int  # steps in each window
    by_priority: bool = True  # in proportion to priority; otherwise all alike
    across_episodes: bool = False  # consecutive steps whatever ends between them


class Window(NamedTuple):
    """B stretches of `horizon` consecutive steps from replay, s_t .. s_{t+horizon}, as tensors.

    Images are indexed, not copied: `rows` holds the places of the frames o_{t-S+1} .. o_{t+horizon} (S
    frames in a stack) in `frames`, so that a shift and the first use of an image can be one pass.

    A window within an episode may begin anywhere and is arbitrary beyond a terminal; `alive` is 1 while no
    earlier step was terminal. A window across episodes has a meaning everywhere: `first` marks where an
    episode begins, the step that would lead there has no action and no reward, and `alive[:, k + 1]` is 0
    only where step k itself was terminal. Its `rows` are whole stacks, which do not overlap where an episode
    begins.
    """

    starts: Tensor  # (B,) where each stretch begins in replay
    frames: Tensor  # (slots, C, H, W) uint8
    rows: Tensor  # (B, S + horizon) places in `frames`; (B, horizon + 1, S) across episodes
    actions: Tensor  # (B, horizon, A)
    rewards: Tensor  # (B, horizon)
    alive: Tensor  # (B, horizon + 1) 0 after a terminal
    first: Tensor  # (B, horizon + 1) whether s_{t+k} is the first observation of an episode
    priority: Tensor  # (B,) of the starts, when they were drawn

    @property
    def horizon(self) -> int:
        return self.rewards.shape[1]

    def stack(self, k: int) -> Tensor:
        """Places of the frames of s_{t+k}: (B, S)."""
        if self.rows.ndim == 3:
            return self.rows[:, k]
        frame_stack = self.rows.shape[1] - self.horizon
        return self.rows[:, k : k + frame_stack]

    def newest_frame(self, k: int) -> Tensor:
        """Place of o_{t+k}, as a stack of one: (B, 1)."""
        return self.stack(k)[:, -1:]
