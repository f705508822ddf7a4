"""What `ogspr train` shows during a session, and calls of the user's callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ogspr.callbacks import Callback, Evaluated
from ogspr.records.display import Display, RunStatus
from ogspr.training.evaluation import Evaluation
from ogspr.training.run import Listener, Request, Run
from ogspr.training.signals import StopRequest


class Spectator(Listener):
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
            f"{who}evaluation at agent step {evaluation.snapshot.agent_steps}: "
            f"score {evaluation.mean_score:.1f} ({spread}){mark}"
        )

    def round(self, runs: Sequence[Run]) -> None:
        self._display.show([_status(run, self._random_steps) for run in runs])


class Announcer(Spectator):
    """A spectator that also calls the user's callbacks.

    After one has raised an exception none is called again, and everything is saved, as if a stop had been
    requested. `error` is the exception.
    """

    def __init__(
        self, display: Display, request: Request, callbacks: Sequence[Callback], stop: StopRequest
    ) -> None:
        super().__init__(display, request)
        self.runs: Sequence[Run] = ()  # all of them, once training has started
        self.error: Exception | None = None
        self._callbacks = callbacks
        self._stop = stop
        self._over: list[Evaluated] = []  # evaluations that callbacks have not heard of
        self._agent_steps: dict[int, int] = {}  # that they know of
        self._logged: dict[int, object] = {}  # the row of each run that callbacks know of

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None:
        super().evaluation(seed, evaluation, best)
        if not self._callbacks:
            return
        snapshot = evaluation.snapshot
        scores = tuple(episode.score for episode in evaluation.episodes)
        over = Evaluated(seed, snapshot.agent_steps, snapshot.frames, scores, evaluation.mean_score, best)
        self._over.append(over)

    def round(self, runs: Sequence[Run]) -> None:
        super().round(runs)
        if not self._callbacks:
            return
        if not self.runs:
            self._tell(lambda callback: callback.on_start([run.config.seed for run in runs]))
        self.runs = list(runs)
        agent_steps = {run.config.seed: run.trainer.progress.agent_steps for run in runs}
        if agent_steps != self._agent_steps:
            self._agent_steps = agent_steps
            self._tell(lambda callback: callback.on_step(dict(agent_steps)))
        while self._over:
            over = self._over.pop(0)
            self._tell(partial(_tell_evaluation, over))
        for run in runs:
            seed, row = run.config.seed, run.trainer.latest
            if row and self._logged.get(seed) is not row:
                self._logged[seed] = row
                self._tell(partial(_tell_row, seed, row))

    def end(self, runs: Sequence[Run]) -> None:
        """Training is over, as it should be or because a callback has ended it."""
        for callback in self._callbacks:
            callback.on_end([run.config.seed for run in runs])

    def _tell(self, call: Callable[[Callback], None]) -> None:
        for callback in self._callbacks:
            if self.error is not None:
                return
            try:
                call(callback)
            except Exception as error:
                self.error = error
                self._stop.ask()


def _tell_evaluation(over: Evaluated, callback: Callback) -> None:
    callback.on_evaluation(over)


def _tell_row(seed: int, row: Mapping[str, float], callback: Callback) -> None:
    callback.on_log(seed, dict(row))


def _status(run: Run, random_steps: int) -> RunStatus:
    progress = run.trainer.progress
    return RunStatus(
        f"seed {run.config.seed}",
        progress.agent_steps,
        run.options.agent_steps,
        progress.last_score,
        progress.best_score,
        run.trainer.latest,
        run.trainer.evaluating,
        learning=progress.agent_steps > random_steps,
    )
