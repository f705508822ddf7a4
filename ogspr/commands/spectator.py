"""What `ogspr train` shows of a session while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from ogspr.records.display import Display, RunStatus
from ogspr.train.evaluation import Evaluation
from ogspr.train.session import Audience, Request, Run


class Spectator(Audience):
    """Passes on to a display what happens in a session."""

    def __init__(self, display: Display, request: Request) -> None:
        self._display = display
        self._several = len(request.seeds) > 1
        self._random_steps = request.options.agent.random_steps

    def line(self, text: str) -> None:
        self._display.line(text)

    def warning(self, text: str) -> None:
        self._display.warning(text)

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None:
        who = f"seed {seed}  " if self._several else ""
        scores = [episode.score for episode in evaluation.episodes]
        spread = f"{min(scores):.1f} to {max(scores):.1f}"
        mark = ", the best so far" if best else ""
        self._display.line(
            f"{who}evaluation at agent step {evaluation.occasion.agent_steps}: "
            f"score {evaluation.mean_score:.1f} ({spread}){mark}"
        )

    def round(self, runs: Sequence[Run]) -> None:
        self._display.show([_status(run, self._random_steps) for run in runs])


def _status(run: Run, random_steps: int) -> RunStatus:
    progress = run.trainer.progress
    return RunStatus(
        f"seed {run.config.seed}",
        progress.agent_steps,
        run.agent_steps,
        progress.last_score,
        progress.best_score,
        run.trainer.latest,
        run.trainer.evaluating,
        learning=progress.agent_steps > random_steps,
    )
