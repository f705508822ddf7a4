"""Episodes of a trained policy: what it saw, what it did, and the state the simulator was in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ogspr.agents.protocol import Policy
from ogspr.envs import SplitStepEnvironment
from ogspr.errors import UserError
from ogspr.train.learner import finite
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

    An episode whose simulator failed at its first step holds nothing, and is left out.

    Args:
        policy: Acts for all environments at once, without noise.
        environments: They share the episodes out in turn.
        episodes: How many, at least as many as environments.
        report: Told after every step how many episodes are over.
    """
    rng = np.random.default_rng(0)
    share, more = divmod(episodes, len(environments))
    seats = [_Seat(env, share + (place < more)) for place, env in enumerate(environments)]
    while playing := [seat for seat in seats if seat.remaining]:
        # For all, also for those that are done: a fixed number is what makes acting fast.
        actions = finite(policy.act(np.stack([seat.step.observation for seat in seats]), rng))
        for seat, action in zip(seats, actions, strict=True):
            if seat.remaining:
                seat.begin_step(action)
        for seat in playing:
            seat.finish_step()
        report(episodes - sum(seat.remaining for seat in seats))
    most = max(len(seat.done) for seat in seats)
    in_turn = [seat.done[turn] for turn in range(most) for seat in seats if turn < len(seat.done)]
    return [recording for recording in in_turn if len(recording)]


class Stage:
    """Environments on which one policy after the other plays; all find them in the same state.

    Args:
        environments: Fresh ones of a task that has a state beside its pictures, else a UserError.
    """

    def __init__(self, environments: Sequence[SplitStepEnvironment]) -> None:
        self._environments = environments
        self.spec: EnvSpec = environments[0].spec  # waits until it is built
        if not self.spec.proprioception_size:
            raise UserError(
                f"{self.spec.name} shows no state beside its pictures, so there is nothing to predict; "
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


@dataclass
class _Seat:
    """One environment, and the episodes that it plays one after the other."""

    env: SplitStepEnvironment
    remaining: int
    done: list[Recording] = field(default_factory=list)
    step: TimeStep = field(init=False)

    def __post_init__(self) -> None:
        self._begin()

    def begin_step(self, action: Action) -> None:
        self._actions.append(action)
        self.env.begin_step(action)

    def finish_step(self) -> None:
        self.step = self.env.finish_step()
        self._frames.append(self.step.observation[-self.env.spec.frame_shape[0] :])
        self._proprioception.append(self.step.proprioception)
        self._score += self.step.score
        if self.step.last:
            self.done.append(self._recording())
            self.remaining -= 1
            if self.remaining:
                self._begin()

    def _begin(self) -> None:
        spec = self.env.spec
        self.step = self.env.reset()
        self._frames = list(self.step.observation.reshape(spec.frame_stack, *spec.frame_shape))
        self._actions: list[Action] = []
        self._proprioception = [self.step.proprioception]
        self._score = 0.0

    def _recording(self) -> Recording:
        # Where the simulator failed, nobody knows the state that the last action led to.
        steps = len(self._actions) - bool(self.step.fault)
        return Recording(
            frames=np.stack(self._frames[: self.env.spec.frame_stack + steps - 1]),
            actions=np.array(self._actions[:steps]),
            proprioception=np.stack(self._proprioception[: steps + 1]),
            score=self._score,
        )
