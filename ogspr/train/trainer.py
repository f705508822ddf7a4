"""The training loop of one run: act, step the environment while the device makes the update, store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

from ogspr.agents.protocol import State
from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.train.evaluation import Evaluation, Evaluator, Occasion
from ogspr.train.learner import Learner
from ogspr.train.stopwatch import Stopwatch
from ogspr.types import Action, TimeStep


@dataclass(frozen=True)
class Schedule:
    """When what happens, in agent steps."""

    agent_steps: int  # in all
    evaluate_every: int  # also before the first step and after the last
    log_every: int
    overlap: bool  # whether training goes on during an evaluation
    final_episodes: int | None = None  # of the evaluation after the last step; None: as many as in others


class Records(Protocol):
    """Where a run is written down."""

    def train(self, row: dict[str, float]) -> None: ...

    def episode(self, row: dict[str, Any]) -> None: ...

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None: ...


@dataclass
class Progress:
    """How far a run is. Everything here is saved with it."""

    agent_steps: int = 0
    frames: int = 0
    episodes: int = 0
    episode_score: float = 0.0
    episode_steps: int = 0
    evaluated_at: int = -1  # agent steps at which the last evaluation began
    last_score: float | None = None  # mean of the last evaluation
    best_score: float | None = None


class Trainer:
    """Trains one agent in one environment. Between the parts of a round, others have the device.

    Args:
        learner: Acts, stores, updates.
        env: What it learns in.
        evaluator: Judges copies of it.
        records: Is told everything.
        schedule: When what happens.
        watch: Told what is being done.
    """

    def __init__(
        self,
        learner: Learner,
        env: SplitStepEnvironment,
        evaluator: Evaluator,
        records: Records,
        schedule: Schedule,
        watch: Stopwatch,
    ) -> None:
        self.progress = Progress()
        self.latest: dict[str, float] = {}  # the last row of the log; a new one is another object
        self._learner = learner
        self._env = env
        self._evaluator = evaluator
        self._records = records
        self._schedule = schedule
        self._switch = watch.switch
        self._scores: list[float] = []  # of episodes since the last row of the log
        self._current: TimeStep | None = None
        self._action: Action | None = None
        self._rehearsed = False
        self._stepping = False  # whether this round has a step of training

    @property
    def finished(self) -> bool:
        """All steps are done, and the last evaluation too."""
        return self._out_of_steps and not self._evaluation_due and not self._evaluator.busy

    @property
    def evaluating(self) -> bool:
        return self._evaluator.busy

    def start(self) -> None:
        """The first observation of a new run."""
        self._begin_episode()

    @property
    def needs_rehearsal(self) -> bool:
        """Whether the next round has the first update of this process."""
        return not self._rehearsed and self._learner.updates_due(self.progress.agent_steps + 1) > 0

    def rehearse(self) -> None:
        """What makes the first update slow, at a place where it can be interrupted."""
        self._learner.rehearse()
        self._rehearsed = True

    def begin_round(self) -> None:
        """Begins an evaluation if one is due; then, unless it has to be waited for, a step of training.

        The parts of a round in their order: this, `pass_on_action`, `finish_round`.
        """
        if self._evaluation_due and not self._evaluator.busy:
            self._switch("evaluate")
            self._begin_evaluation()
        self._stepping = not self._out_of_steps and not self._must_wait
        if self._stepping:
            assert self._current is not None
            agent_steps = self.progress.agent_steps
            self._switch("act")
            self._learner.ask(self._current.observation, agent_steps=agent_steps, explore=True)
            self._switch("update")
            self._learner.plan_updates(agent_steps + 1)
        self._switch(Stopwatch.REST)

    def pass_on_action(self) -> None:
        """Waits for the action that was asked for; the environment starts to work."""
        if self._stepping:
            self._switch("act")
            self._action = self._learner.action()
            self._switch("environment")
            self._env.begin_step(self._action)
        self._switch(Stopwatch.REST)

    def finish_round(self) -> None:
        """Lets updates and an evaluation go on; waits for the environment and stores what it did."""
        self._switch("update")
        self._learner.make_updates()
        if self._evaluator.busy:
            self._switch("evaluate")
            self._heed(self._evaluator.advance(wait=not self._stepping))
        if self._stepping:
            self._finish_step()
        self._switch(Stopwatch.REST)

    def state_dict(self) -> State:
        """Between two steps: everything but the learner."""
        return {
            "progress": dict(vars(self.progress)),
            "scores": list(self._scores),
            "environment": self._env.snapshot(),
            "evaluator": self._evaluator.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Into a fresh environment and evaluator; then the run goes on without `start`."""
        self.progress = Progress(**state["progress"])
        self._scores = list(state["scores"])
        self._current = self._env.restore(state["environment"])
        self._evaluator.load_state_dict(state["evaluator"])

    @property
    def _out_of_steps(self) -> bool:
        return self.progress.agent_steps >= self._schedule.agent_steps

    @property
    def _evaluation_due(self) -> bool:
        progress, schedule = self.progress, self._schedule
        regular = progress.agent_steps % schedule.evaluate_every == 0
        return (regular or self._out_of_steps) and progress.evaluated_at != progress.agent_steps

    @property
    def _must_wait(self) -> bool:
        """Training stands still for an evaluation: on request, and if the next one is due already."""
        return self._evaluator.busy and (not self._schedule.overlap or self._evaluation_due)

    def _finish_step(self) -> None:
        assert self._action is not None
        self._switch("environment")
        step = self._env.finish_step()
        self._switch("store")
        self._learner.add(self._action, step)
        self._count(step)
        if step.last:
            self._switch("environment")
            self._close_episode(step)
            self._begin_episode()
        self._switch("log")
        if self.progress.agent_steps % self._schedule.log_every == 0:
            self._log()

    def _begin_episode(self) -> None:
        progress = self.progress
        progress.episode_score, progress.episode_steps = 0.0, 0
        self._current = self._env.reset()
        self._learner.begin(self._current)

    def _count(self, step: TimeStep) -> None:
        progress = self.progress
        self._current = step
        progress.agent_steps += 1
        progress.frames += step.frames
        progress.episode_score += step.score
        progress.episode_steps += 1

    def _close_episode(self, step: TimeStep) -> None:
        progress = self.progress
        progress.episodes += 1
        self._scores.append(progress.episode_score)
        self._records.episode(
            {
                "agent_steps": progress.agent_steps,
                "frames": progress.frames,
                "episode": progress.episodes,
                "score": progress.episode_score,
                "episode_steps": progress.episode_steps,
                "ended": step.ending,
                "fault": step.fault,
            }
        )

    def _log(self) -> None:
        progress = self.progress
        self.latest = {
            "agent_steps": progress.agent_steps,
            "frames": progress.frames,
            "episodes": progress.episodes,
            "score": fmean(self._scores) if self._scores else float("nan"),
            **self._learner.metrics(),
        }
        self._scores = []
        self._records.train(self.latest)

    def _begin_evaluation(self) -> None:
        progress = self.progress
        weights = self._learner.policy_weights()
        episodes = self._schedule.final_episodes if self._out_of_steps else None
        self._evaluator.begin(Occasion(progress.agent_steps, progress.frames, weights), episodes)
        progress.evaluated_at = progress.agent_steps

    def _heed(self, evaluation: Evaluation | None) -> None:
        if evaluation is None:
            return
        score, progress = evaluation.mean_score, self.progress
        best = progress.best_score is None or score > progress.best_score
        progress.last_score = score
        progress.best_score = score if best else progress.best_score
        self._records.evaluation(evaluation, best=best)


def was_finished(state: Mapping[str, Any], agent_steps: int) -> bool:
    """Whether a trainer that was saved had made so many steps, and had ended the evaluation after them."""
    progress = Progress(**state["progress"])
    evaluated = progress.evaluated_at == progress.agent_steps and state["evaluator"]["occasion"] is None
    return progress.agent_steps >= agent_steps and evaluated
