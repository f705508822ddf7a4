"""Tiny pixel worlds whose values are known, to be learned in seconds.

A state is a number; its picture is four large squares, bright where a bit of the number is set, so that a
shift by a few pixels does not change what it says. Worlds differ in where an episode begins, what a step
does, and hence in what a state and an action are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from ogspr.types import Action, ActionSpec, ContinuousActions, DiscreteActions, EnvSpec, TimeStep, UInt8Array

SIDE = 32
FRAME_STACK = 2
DARK, BRIGHT = 40, 215
BLANK = 0


def picture(code: int) -> UInt8Array:
    """Four squares, one for each bit: (1, SIDE, SIDE)."""
    bits = (code >> np.arange(4)) & 1
    squares = np.where(bits == 1, BRIGHT, DARK).reshape(1, 2, 2).astype(np.uint8)
    return squares.repeat(SIDE // 2, axis=1).repeat(SIDE // 2, axis=2)


class Choice(Protocol):
    """A kind of action, and what each action is worth when one of them is the best."""

    actions: ActionSpec
    probes: Sequence[Action]  # the actions whose values are checked

    def best(self, state: int) -> Action: ...

    def reward(self, state: int, action: Action) -> float: ...


class ContinuousChoice:
    """One number: the closer to the best one, the better."""

    actions = ContinuousActions(1)
    probes = tuple(np.full(1, number, np.float32) for number in (-0.8, -0.4, 0.0, 0.4, 0.8))
    _best: ClassVar = {1: 0.5, 5: 1.0, 10: -1.0}

    def best(self, state: int) -> Action:
        return np.full(1, self._best[state], np.float32)

    def reward(self, state: int, action: Action) -> float:
        return 1.0 - abs(float(action[0]) - self._best[state])


class DiscreteChoice:
    """One of three: one pays, the others do not."""

    actions = DiscreteActions(3)
    probes = tuple(np.asarray(index) for index in range(3))
    _best: ClassVar = {1: 2, 5: 0, 10: 1}

    def best(self, state: int) -> Action:
        return np.asarray(self._best[state])

    def reward(self, state: int, action: Action) -> float:
        return float(int(action) == self._best[state])


class Outcome(NamedTuple):
    """What a step leads to."""

    reward: float
    state: int
    terminated: bool = False


@dataclass
class World:
    """One-step episodes, each of reward 1; the other worlds change what they need to."""

    choice: Choice
    rng: np.random.Generator
    discount: float = 0.8

    starts: ClassVar[tuple[int, ...]] = (1,)  # where episodes begin, each equally often
    states: ClassVar[tuple[int, ...]] = (1,)  # all states but the last of an episode
    episode_steps: ClassVar[int | None] = None  # steps until truncation

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            type(self).__name__, (1, SIDE, SIDE), FRAME_STACK, self.choice.actions, 1, self.episode_steps
        )

    # --- what a world is ------------------------------------------------------------------------

    def shown(self, state: int) -> int:
        """The code of a state's picture."""
        return state

    def outcome(self, state: int, action: Action) -> Outcome:
        return Outcome(self.value(state, action), BLANK, terminated=True)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        """The true value under the best policy."""
        return 1.0

    # --- how it is played -----------------------------------------------------------------------

    def reset(self) -> TimeStep:
        self.steps = 0
        self.state = int(self.rng.choice(self.starts))
        frame = picture(self.shown(self.state))
        self.observation = np.concatenate([frame] * FRAME_STACK)
        return self._time_step(0.0, terminated=False)

    def step(self, action: Action) -> TimeStep:
        self.steps += 1
        reward, self.state, terminated = self.outcome(self.state, self.choice.actions.checked(action))
        self.observation = np.concatenate((self.observation[1:], picture(self.shown(self.state))))
        return self._time_step(reward, terminated)

    def _time_step(self, reward: float, terminated: bool) -> TimeStep:
        truncated = not terminated and self.steps == self.episode_steps
        return TimeStep(self.observation, reward, reward, terminated, truncated, 1, np.zeros(0))


class ConstantWorld(World):
    """Every step is the last and pays 1."""


class PictureWorld(World):
    """One-step episodes: what is shown decides whether they pay 1 or cost 1."""

    starts = states = (5, 10)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return 1.0 if state == self.starts[0] else -1.0


class MemoryWorld(PictureWorld):
    """Two steps: the cue is gone when it counts, only the frame before shows it."""

    states = (5, 10, 5 + 16, 10 + 16)

    def shown(self, state: int) -> int:
        return state if state < 16 else BLANK

    def outcome(self, state: int, action: Action) -> Outcome:
        if state < 16:
            return Outcome(0.0, state + 16)
        return Outcome(self.value(state, action), 15, terminated=True)

    def value(self, state: int, action: Action) -> float:
        if state < 16:
            return self.discount * super().value(state, action)
        return super().value(state - 16, action)


class ChainWorld(World):
    """Six steps, the last of which pays 1: longer than a window of three, so the first states need Q'."""

    starts = (1,)
    states = (1, 2, 3, 4, 5, 6)

    def outcome(self, state: int, action: Action) -> Outcome:  # noqa: ARG002
        last = state == self.states[-1]
        return Outcome(float(last), state + 1, terminated=last)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return self.discount ** (self.states[-1] - state)


class EndlessWorld(World):
    """A step pays 1 for ever; episodes are merely cut."""

    episode_steps = 7

    def outcome(self, state: int, action: Action) -> Outcome:  # noqa: ARG002
        return Outcome(1.0, state)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return 1.0 / (1.0 - self.discount)


class ActionWorld(World):
    """One-step episodes: the action decides what they pay."""

    def value(self, state: int, action: Action) -> float:
        return self.choice.reward(state, action)


class CueWorld(ActionWorld):
    """One-step episodes: what is shown decides which action is the best."""

    starts = states = (5, 10)


class PlanWorld(World):
    """Two steps: the second one's action decides what both are worth."""

    starts = (5,)
    states = (5, 10)

    def outcome(self, state: int, action: Action) -> Outcome:
        if state == self.starts[0]:
            return Outcome(0.0, self.states[1])
        return Outcome(self.value(state, action), BLANK, terminated=True)

    def value(self, state: int, action: Action) -> float:
        if state == self.starts[0]:
            return self.discount
        return self.choice.reward(state, action)
