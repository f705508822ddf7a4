"""What a Python program may hear of its runs while they go on: `ogspr.Callback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class StopTraining(Exception):
    """Raised by a callback, it ends training: everything is saved, and `ogspr.train` returns as usual."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of one run."""

    seed: int
    agent_steps: int
    frames: int
    scores: tuple[float, ...] = field(repr=False)
    """Of every episode."""
    score: float
    """Their mean."""
    best: bool
    """Whether it is the best so far, so that its policy was saved as the best one."""


class Callback:
    """Override what you want to hear.

    Callbacks are called between two agent steps, in the thread that trains. They see copies, so they cannot
    change a run. If one raises anything, all runs are saved and no callback hears more of them. StopTraining
    ends training well, with `on_end`; other exceptions are raised by `ogspr.train`.
    """

    def on_start(self, seeds: Sequence[int]) -> None:
        """The first step is made: of new runs, or of runs that continue from their last checkpoint."""

    def on_step(self, agent_steps: Mapping[int, int]) -> None:
        """How many agent steps each seed has made, after each of them. Keep it short."""

    def on_log(self, seed: int, row: Mapping[str, float]) -> None:
        """A new row of train.csv: losses, gradient norms, score of the last episodes."""

    def on_evaluation(self, evaluation: Evaluated) -> None:
        """An evaluation is over."""

    def on_end(self, seeds: Sequence[int]) -> None:
        """Training is over, and these runs are saved."""
