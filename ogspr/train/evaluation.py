"""Whole episodes of a frozen policy, side by side in environments of their own, beside training.

An evaluation begins with the state in which the one before left the environments, and with weights that do
not change meanwhile: what it finds does not depend on when, or how often, somebody has time for it. Until it
is over, the state it began with is what is saved: a run that was killed begins it again and finds the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from ogspr.agents.protocol import Policy, State
from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.train.learner import finite
from ogspr.train.state_file import as_arrays, as_tensors
from ogspr.types import Action, Episode, Snapshot, TimeStep


@dataclass(frozen=True)
class Occasion:
    """What is evaluated: the policy as it was after so many steps of training."""

    agent_steps: int
    frames: int
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Evaluation:
    """All episodes of one occasion, in an order that does not depend on who was first."""

    occasion: Occasion
    episodes: tuple[Episode, ...]

    @property
    def mean_score(self) -> float:
        return fmean(episode.score for episode in self.episodes)


@dataclass
class _Seat:
    """One environment, and the episodes that it plays one after the other."""

    env: SplitStepEnvironment
    remaining: int = 0
    current: TimeStep | None = None
    score: float = 0.0
    agent_steps: int = 0
    frames: int = 0
    done: list[Episode] = field(default_factory=list)

    @property
    def playing(self) -> bool:
        return self.remaining > 0

    def begin(self, episodes: int) -> None:
        self.remaining, self.done = episodes, []
        self._reset()

    def arrive(self) -> None:
        """Takes the step that was begun."""
        step = self.env.finish_step()
        self.current = step
        self.score += step.score
        self.agent_steps += 1
        self.frames += step.frames
        if step.last:
            self.done.append(Episode(self.score, self.agent_steps, self.frames, step.ending, step.fault))
            self.remaining -= 1
            self._reset()

    def _reset(self) -> None:
        self.score, self.agent_steps, self.frames = 0.0, 0, 0
        if self.playing:
            self.current = self.env.reset()


class Evaluator:
    """Plays `episodes` episodes in `environments`, which share them out in turn.

    Args:
        policy: Acts for all environments at once, with the weights of the occasion.
        environments: Restored by `load_state_dict`, or fresh.
        episodes: In each evaluation that is not told otherwise.
        seed: Decides, with the occasion, what a policy that draws its actions draws.
    """

    def __init__(
        self,
        policy: Policy,
        environments: Sequence[SplitStepEnvironment],
        episodes: int,
        seed: int = 0,
    ) -> None:
        self._policy = policy
        self._seed = seed
        self._seats = [_Seat(env) for env in environments]
        self._episodes = episodes
        self._used = False  # else the environments are fresh, and have no state yet
        self._starts: list[Snapshot] = []  # of the evaluation that goes on
        self._occasion: Occasion | None = None
        self._asked: int | None = None  # episodes of it, where it has a number of its own

    @property
    def busy(self) -> bool:
        return self._occasion is not None

    def begin(self, occasion: Occasion, episodes: int | None = None) -> None:
        """Starts an evaluation, of as many episodes as usual or as told; the one before must be over."""
        if self.busy:
            raise RuntimeError("the last evaluation is not over")
        self._starts = self._snapshots()
        self._begin(occasion, episodes)

    def advance(self, *, wait: bool) -> Evaluation | None:
        """One step of every environment, if all are ready or `wait`; the result after the last one."""
        playing = [seat for seat in self._seats if seat.playing]
        if not wait and not all(seat.env.step_ready() for seat in playing):
            return None
        for seat in playing:
            seat.arrive()
        if any(seat.playing for seat in self._seats):
            self._begin_steps()
            return None
        return self._finish()

    def close(self) -> None:
        for seat in self._seats:
            seat.env.close()

    def state_dict(self) -> State:
        occasion = self._occasion
        return {
            "environments": self._starts if occasion else self._snapshots(),
            "occasion": occasion
            and {
                "agent_steps": occasion.agent_steps,
                "frames": occasion.frames,
                "weights": as_arrays(dict(occasion.weights)),
                "episodes": self._asked,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Into fresh environments; an evaluation that was going on begins again."""
        self._starts = state["environments"]
        if self._starts and len(self._starts) != len(self._seats):
            raise ValueError(f"it has {len(self._starts)} evaluation environments, not {len(self._seats)}")
        for seat, snapshot in zip(self._seats, self._starts, strict=bool(self._starts)):
            seat.env.restore(snapshot)
        self._used = bool(self._starts)
        if (saved := state["occasion"]) is not None:
            occasion = Occasion(saved["agent_steps"], saved["frames"], as_tensors(saved["weights"]))
            self._begin(occasion, saved.get("episodes"))

    def _snapshots(self) -> list[Snapshot]:
        return [seat.env.snapshot() for seat in self._seats] if self._used else []

    def _begin(self, occasion: Occasion, episodes: int | None) -> None:
        self._policy.load_weights(occasion.weights)
        # Of the occasion, and not of what came before: an evaluation that begins again finds the same.
        self._rng = np.random.default_rng((self._seed, occasion.agent_steps))
        self._occasion, self._asked = occasion, episodes
        self._used = True
        share, more = divmod(episodes or self._episodes, len(self._seats))
        for place, seat in enumerate(self._seats):
            seat.begin(share + (place < more))
        self._begin_steps()

    def _begin_steps(self) -> None:
        """Acts for all, also for those who are done: a fixed number is what makes acting fast."""
        pictures = np.stack([_observation(seat) for seat in self._seats])
        actions: Action = finite(self._policy.act(pictures, self._rng))
        for seat, action in zip(self._seats, actions, strict=True):
            if seat.playing:
                seat.env.begin_step(action)

    def _finish(self) -> Evaluation:
        occasion = self._occasion
        assert occasion is not None
        self._occasion, self._starts = None, []
        most = max(len(seat.done) for seat in self._seats)
        in_turn = [seat.done[turn] for turn in range(most) for seat in self._seats if turn < len(seat.done)]
        return Evaluation(occasion, tuple(in_turn))


def _observation(seat: _Seat) -> Any:
    assert seat.current is not None
    return seat.current.observation
