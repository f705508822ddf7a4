"""Full episodes of a frozen policy, side by side in separate environments, during training.

An evaluation begins with the state in which the one before left the environments, and with weights that do
not change meanwhile: its result does not depend on when, or how often, it is advanced. Until it is over, the
state it started with is what is saved: a killed run starts it again and gets the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from ogspr.agents.protocol import LearnedPolicy, State
from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.training.episodes import EpisodeDriver
from ogspr.training.state_file import as_arrays, as_tensors
from ogspr.types import Episode, Snapshot


@dataclass(frozen=True)
class PolicySnapshot:
    """What is evaluated: the policy as it was after `agent_steps` steps of training."""

    agent_steps: int
    frames: int
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Evaluation:
    """All episodes of one snapshot, in an order that does not depend on who was first."""

    snapshot: PolicySnapshot
    episodes: tuple[Episode, ...]

    @property
    def mean_score(self) -> float:
        return fmean(episode.score for episode in self.episodes)


class Evaluator:
    """Plays `episodes` episodes in `environments`, which share them out in turn.

    Args:
        policy: Acts for all environments at once, with the weights of the snapshot.
        environments: Restored by `load_state_dict`, or fresh.
        episodes: In each evaluation that is not given another number.
        seed: Decides, with the agent step, what a policy that draws its actions draws.
    """

    def __init__(
        self,
        policy: LearnedPolicy,
        environments: Sequence[SplitStepEnvironment],
        episodes: int,
        seed: int = 0,
    ) -> None:
        self._policy = policy
        self._driver = EpisodeDriver(policy, environments)
        self._environments = environments
        self._episodes = episodes
        self._seed = seed
        self._used = False  # otherwise the environments are fresh, and have no state yet
        self._starts: list[Snapshot] = []  # environment states in which the current evaluation started
        self._snapshot: PolicySnapshot | None = None
        self._requested: int | None = None  # episodes of the current one, if it was given a number

    @property
    def busy(self) -> bool:
        return self._snapshot is not None

    def begin(self, snapshot: PolicySnapshot, episodes: int | None = None) -> None:
        """Starts an evaluation; the one before must be over."""
        if self.busy:
            raise RuntimeError("the last evaluation is still running")
        self._starts = self._environment_states()
        self._begin(snapshot, episodes)

    def get_ready(self, shape: tuple[int, ...]) -> None:
        """Does what makes the first step slow, for observations of that shape; changes nothing."""
        self._policy.get_ready((len(self._environments), *shape))

    def advance(self, *, wait: bool) -> Evaluation | None:
        """One step of every environment, if all are ready or `wait`; the result after the last one."""
        if not wait and not self._driver.step_ready():
            return None
        self._driver.advance()
        if self._driver.playing:
            return None
        snapshot, self._snapshot, self._starts = self._snapshot, None, []
        assert snapshot is not None
        return Evaluation(snapshot, tuple(self._driver.episodes()))

    def close(self) -> None:
        self._driver.close()

    def state_dict(self) -> State:
        snapshot = self._snapshot
        return {
            "environments": self._starts if snapshot else self._environment_states(),
            "occasion": snapshot
            and {
                "agent_steps": snapshot.agent_steps,
                "frames": snapshot.frames,
                "weights": as_arrays(dict(snapshot.weights)),
                "episodes": self._requested,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Into fresh environments; an evaluation that was not over begins again."""
        self._starts = state["environments"]
        count = len(self._environments)
        if self._starts and len(self._starts) != count:
            raise ValueError(f"it has {len(self._starts)} evaluation environments, not {count}")
        for env, start in zip(self._environments, self._starts, strict=bool(self._starts)):
            env.restore(start)
        self._used = bool(self._starts)
        if (saved := state["occasion"]) is not None:
            weights = as_tensors(saved["weights"])
            self._begin(PolicySnapshot(saved["agent_steps"], saved["frames"], weights), saved.get("episodes"))

    def _environment_states(self) -> list[Snapshot]:
        return [env.snapshot() for env in self._environments] if self._used else []

    def _begin(self, snapshot: PolicySnapshot, episodes: int | None) -> None:
        self._policy.load_weights(snapshot.weights)
        self._snapshot, self._requested, self._used = snapshot, episodes, True
        # Seeded by the agent step, not by what came before: one that begins again gets the same result.
        rng = np.random.default_rng((self._seed, snapshot.agent_steps))
        self._driver.begin(episodes or self._episodes, rng)
