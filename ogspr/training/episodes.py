"""Episodes: one environment at a time, and many side by side under one policy.

Everything that plays episodes goes through here: training, evaluation, probing, videos, random scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.errors import Diverged
from ogspr.types import Action, ActionSpec, BoolArray, Episode, TimeStep, UInt8Array

if TYPE_CHECKING:  # torch takes seconds to import, and rollouts do without it
    from ogspr.agents.protocol import Carry, Policy

T = TypeVar("T")
StepListener = Callable[[int, Action | None, TimeStep], None]
"""Called with the number of an environment, the action (None: a reset) and what it led to."""


def finite(action: Action) -> Action:
    """The action itself; Diverged if it is non-finite."""
    if not np.isfinite(action).all():
        raise Diverged("the policy's actions are non-finite.")
    return action


@dataclass
class EpisodeSlot:
    """One environment, and the episode it is in."""

    env: SplitStepEnvironment
    current: TimeStep | None = None
    """The newest time step."""
    score: float = 0.0
    """Of this episode so far, like the next two."""
    agent_steps: int = 0
    frames: int = 0

    @property
    def first(self) -> bool:
        """Whether the newest observation is the first one of its episode."""
        return self.agent_steps == 0

    @property
    def observation(self) -> UInt8Array:
        if self.current is None:
            raise RuntimeError("call reset() before the first step")
        return self.current.observation

    def reset(self) -> TimeStep:
        self.score, self.agent_steps, self.frames = 0.0, 0, 0
        self.current = self.env.reset()
        return self.current

    def finish_step(self) -> TimeStep:
        """Receives the step that was started."""
        step = self.current = self.env.finish_step()
        self.score += step.score
        self.agent_steps += 1
        self.frames += step.frames
        return step

    def episode(self) -> Episode:
        """The one that ended with the newest step."""
        assert self.current is not None
        return Episode(self.score, self.agent_steps, self.frames, self.current.ending, self.current.fault)


class EpisodeDriver:
    """Plays whole episodes of one policy in environments side by side, and keeps the policy's carry.

    The policy acts for all environments at every step, also for those that are done: a fixed number is what
    makes acting fast.

    Args:
        policy: Acts.
        environments: They share out the episodes.
        listen: Called with every reset and every step.
    """

    def __init__(
        self,
        policy: Policy,
        environments: Sequence[SplitStepEnvironment],
        listen: StepListener = lambda _place, _action, _step: None,
    ) -> None:
        self.slots = [EpisodeSlot(env) for env in environments]
        self._policy = policy
        self._listen = listen
        self._remaining = [0] * len(self.slots)
        self._done: list[list[Episode]] = [[] for _ in self.slots]
        self._actions: Action = np.zeros(0)
        self._carry: Carry = {}
        self._rng = np.random.default_rng()

    @property
    def playing(self) -> bool:
        return any(self._remaining)

    @property
    def episodes_over(self) -> int:
        return sum(map(len, self._done))

    def begin(self, episodes: int, rng: np.random.Generator) -> None:
        """Starts on that many episodes; `rng` is for policies that draw their actions."""
        share, more = divmod(episodes, len(self.slots))
        self._remaining = [share + (place < more) for place in range(len(self.slots))]
        self._done = [[] for _ in self.slots]
        self._rng = rng
        self._carry = self._policy.initial_carry(len(self.slots))
        for place in self._places():
            self._reset(place)
        self._begin_steps()

    def step_ready(self) -> bool:
        """Whether `advance` would not have to wait for an environment."""
        return all(self.slots[place].env.step_ready() for place in self._places())

    def advance(self) -> None:
        """One step of every environment that still plays."""
        for place in self._places():
            slot = self.slots[place]
            self._listen(place, self._actions[place], slot.finish_step())
            if slot.current is not None and slot.current.last:
                self._done[place].append(slot.episode())
                self._remaining[place] -= 1
                if self._remaining[place]:
                    self._reset(place)
        if self.playing:
            self._begin_steps()

    def episodes(self) -> list[Episode]:
        """Those that are over, in an order that does not depend on who was first."""
        return in_turn(self._done)

    def play(self, episodes: int, rng: np.random.Generator) -> list[Episode]:
        """Plays to the end."""
        for _ in self.steps(episodes, rng):
            pass
        return self.episodes()

    def steps(self, episodes: int, rng: np.random.Generator) -> Iterator[None]:
        """Plays to the end, and yields after the resets at the start and after each step."""
        self.begin(episodes, rng)
        yield
        while self.playing:
            self.advance()
            yield

    def close(self) -> None:
        for slot in self.slots:
            slot.env.close()

    def _places(self) -> list[int]:
        return [place for place, remaining in enumerate(self._remaining) if remaining]

    def _reset(self, place: int) -> None:
        self._listen(place, None, self.slots[place].reset())

    def _begin_steps(self) -> None:
        images = np.stack([slot.observation for slot in self.slots])
        first = np.array([slot.first for slot in self.slots])
        actions, self._carry = self._policy.act(images, self._carry, first, self._rng)
        self._actions = finite(actions)
        for place in self._places():
            self.slots[place].env.begin_step(self._actions[place])


def in_turn(done: Sequence[Sequence[T]]) -> list[T]:
    """The first of each, then the second of each that has one, and so on."""
    most = max(map(len, done), default=0)
    return [each[turn] for turn in range(most) for each in done if turn < len(each)]


class RandomPolicy:
    """Draws actions uniformly."""

    def __init__(self, actions: ActionSpec) -> None:
        self._actions = actions

    def initial_carry(self, count: int) -> Carry:  # noqa: ARG002
        return {}

    def act(
        self,
        images: UInt8Array,
        carry: Carry,
        first: BoolArray,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> tuple[Action, Carry]:
        return np.stack([self._actions.sample(rng) for _ in images]), carry
