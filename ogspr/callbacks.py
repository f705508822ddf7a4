"""Callbacks for training from Python: `ogspr.Callback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class StopTraining(Exception):
    """Raise it in a callback to stop training: everything is saved, and `ogspr.train` returns as usual."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of one run."""

    seed: int
    agent_steps: int
    frames: int
    scores: tuple[float, ...] = field(repr=False)
    """One score per episode."""
    score: float
    """Mean of the scores."""
    best: bool
    """Whether this is the best score so far; its policy was then saved as `best`."""


class Callback:
    """Override the methods you need.

    Callbacks are called between two agent steps, in the thread that trains. They get copies, so they cannot
    change a run. If one raises an exception, all runs are saved and no callback is called again, except
    `on_end` after StopTraining, which ends training normally. `ogspr.train` raises any other exception.
    """

    def on_start(self, seeds: Sequence[int]) -> None:
        """Called once, before the first `on_step` of this call of `ogspr.train`, which may resume runs.

        `seeds` has all runs. It is not called if all of them were complete already: nothing is trained then.
        """

    def on_step(self, agent_steps: Mapping[int, int]) -> None:
        """Called after every agent step with the agent steps of each seed so far. Keep it short."""

    def on_log(self, seed: int, row: Mapping[str, float]) -> None:
        """A new row of train.csv: losses, gradient norms, score of the last episodes."""

    def on_evaluation(self, evaluation: Evaluated) -> None:
        """An evaluation has finished."""

    def on_end(self, seeds: Sequence[int]) -> None:
        """Training has ended, and these runs are saved."""
