"""Tiny pixel worlds whose values are known, to be learned in seconds.

A state is a number; its picture is four large squares, bright where a bit of the number is set, so that a
shift by a few pixels does not change what it says. Worlds differ in where an episode begins, what a step
does, and hence in what a state and an action are worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from ogspr.types import Action, ActionSpec, ContinuousActions, DiscreteActions, EnvSpec, TimeStep, UInt8Array

SIDE = 32
FRAME_STACK = 2
DARK, BRIGHT = 40, 215
BLANK = 0  # the state whose squares are all dark


def picture(code: int) -> UInt8Array:
    """Four squares, one for each bit: (1, SIDE, SIDE)."""
    bits = (code >> np.arange(4)) & 1
    squares = np.where(bits == 1, BRIGHT, DARK).reshape(1, 2, 2).astype(np.uint8)
    return squares.repeat(SIDE // 2, axis=1).repeat(SIDE // 2, axis=2)


class Choice(Protocol):
    """A kind of action, with a best one in the states where actions matter."""

    actions: ActionSpec
    probes: Sequence[Action]  # the actions whose values are looked at
    best: Mapping[int, Action]  # by state

    @staticmethod
    def reward(action: Action, best: Action) -> float:
        """1 for the best one."""
        ...


class ContinuousChoice:
    """One number: the closer to the best one, the better."""

    actions = ContinuousActions(1)
    probes = tuple(np.float32([number]) for number in (-0.8, -0.4, 0.0, 0.4, 0.8))
    best: ClassVar = {1: np.float32([0.5]), 5: np.float32([1.0]), 10: np.float32([-1.0])}

    @staticmethod
    def reward(action: Action, best: Action) -> float:
        return 1.0 - 0.5 * float(action[0] - best[0]) ** 2


class DiscreteChoice:
    """One of three: one pays, the others do not."""

    actions = DiscreteActions(3)
    probes = tuple(np.int64([0, 1, 2]))
    best: ClassVar = {1: np.int64(2), 5: np.int64(0), 10: np.int64(1)}

    @staticmethod
    def reward(action: Action, best: Action) -> float:
        return float(action == best)


class Outcome(NamedTuple):
    """What a step leads to."""

    reward: float
    state: int
    terminated: bool


class World:
    """Plays episodes of one-step worlds; the longer ones say what a step does.

    Args:
        choice: The kind of action.
        seed: Decides where each episode begins.
    """

    starts: ClassVar[tuple[int, ...]] = (1,)  # where episodes begin, each equally often
    states: ClassVar[tuple[int, ...]] = (1,)  # all but those an episode ends in
    decisive: ClassVar[tuple[int, ...]] = ()  # the states where actions matter
    discount: ClassVar[float] = 0.8
    episode_steps: ClassVar[int | None] = None  # until truncation

    def __init__(self, choice: Choice, seed: int) -> None:
        self.choice = choice
        self.spec = EnvSpec(
            type(self).__name__, (1, SIDE, SIDE), FRAME_STACK, choice.actions, 1, self.episode_steps
        )
        self._rng = np.random.default_rng(seed)

    def value(self, state: int, action: Action) -> float:
        """What they are worth when everything after is done for the best."""
        raise NotImplementedError

    def outcome(self, state: int, action: Action) -> Outcome:
        return Outcome(self.value(state, action), BLANK, terminated=True)

    def shown(self, state: int) -> int:
        """The code of a state's picture."""
        return state

    def reset(self) -> TimeStep:
        self.steps = 0
        self.state = int(self._rng.choice(self.starts))
        self._frames = [picture(self.shown(self.state))] * FRAME_STACK
        return self._time_step(0.0, terminated=False)

    def step(self, action: Action) -> TimeStep:
        self.steps += 1
        reward, self.state, terminated = self.outcome(self.state, self.choice.actions.checked(action))
        self._frames = [*self._frames[1:], picture(self.shown(self.state))]
        return self._time_step(reward, terminated)

    def _time_step(self, reward: float, terminated: bool) -> TimeStep:
        truncated = not terminated and self.steps == self.episode_steps
        observation = np.concatenate(self._frames)
        return TimeStep(observation, reward, reward, terminated, truncated, 1, np.zeros(0))


class ConstantWorld(World):
    """One step, which pays 1."""

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return 1.0


class PictureWorld(World):
    """One step; what is shown decides whether it pays or costs 1."""

    starts = states = (5, 10)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return 1.0 if state == 5 else -1.0


class MemoryWorld(World):
    """Two steps; the second pays or costs 1, when only the frame before still shows which."""

    starts = (5, 10)
    states = (5, 10, 16 + 5, 16 + 10)

    def shown(self, state: int) -> int:
        return state if state < 16 else BLANK

    def outcome(self, state: int, action: Action) -> Outcome:
        if state < 16:
            return Outcome(0.0, 16 + state, terminated=False)
        return Outcome(self.value(state, action), 15, terminated=True)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        last = 1.0 if state % 16 == 5 else -1.0
        return last if state >= 16 else self.discount * last


class ChainWorld(World):
    """Six steps, the last pays 1: from the first ones a window of three sees nothing of it."""

    states = (1, 2, 3, 4, 5, 6)

    def outcome(self, state: int, action: Action) -> Outcome:  # noqa: ARG002
        return Outcome(float(state == 6), state + 1, terminated=state == 6)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return self.discount ** (6 - state)


class EndlessWorld(World):
    """Every step pays 1, for ever: episodes are only cut."""

    discount = 0.7
    episode_steps = 7

    def outcome(self, state: int, action: Action) -> Outcome:  # noqa: ARG002
        return Outcome(1.0, state, terminated=False)

    def value(self, state: int, action: Action) -> float:  # noqa: ARG002
        return 1.0 / (1.0 - self.discount)


class ActionWorld(World):
    """One step; the action decides what it pays."""

    decisive = (1,)

    def value(self, state: int, action: Action) -> float:
        return self.choice.reward(action, self.choice.best[state])


class CueWorld(ActionWorld):
    """One step; what is shown decides which action is the best."""

    starts = states = decisive = (5, 10)


class PlanWorld(ActionWorld):
    """Two steps; the action of the second decides what it pays, and so what the first is worth."""

    starts = (5,)
    states = (5, 10)
    decisive = (10,)

    def outcome(self, state: int, action: Action) -> Outcome:
        if state == 5:
            return Outcome(0.0, 10, terminated=False)
        return super().outcome(state, action)

    def value(self, state: int, action: Action) -> float:
        return self.discount if state == 5 else super().value(state, action)
