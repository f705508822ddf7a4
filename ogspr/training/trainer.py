"""The training loop of one run: act, update, step the environment, store."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

from ogspr.agents.protocol import State
from ogspr.envs.protocol import SplitStepEnvironment
from ogspr.training.episodes import EpisodeSlot, finite
from ogspr.training.evaluation import Evaluation, Evaluator, PolicySnapshot
from ogspr.training.learner import Learner
from ogspr.types import Action


class Stopwatch:
    """Seconds by phase. One phase begins where another ends, so all of them add up to the whole."""

    REST = "rest"  # between the named phases

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._phase = self.REST
        self._since = time.perf_counter()

    def switch(self, phase: str) -> None:
        """From now on time counts for `phase`."""
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now


@dataclass(frozen=True)
class Schedule:
    """When what happens, in agent steps."""

    agent_steps: int  # in all
    evaluate_every: int  # also before the first step and after the last
    log_every: int
    overlap: bool  # whether training continues during an evaluation
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
    evaluated_at: int = -1  # agent steps at which the last evaluation started
    last_score: float | None = None  # mean of the last evaluation
    best_score: float | None = None


class Trainer:
    """Trains one agent in one environment, in rounds. Between the parts of a round, others have the device.

    A round with a step of training, in order:

        begin_round     ask the agent for an action; on a GPU, queue the updates behind it
        send_action     wait for the action; the environment starts to work
        finish_round    on a CPU, make the updates; let an evaluation advance;
                        wait for the environment; store what it did

    A GPU gets its updates early, so that it is busy while everything else waits for the environment. On a CPU
    they would delay the action.

    Args:
        learner: Acts, stores, updates.
        env: What it learns in.
        evaluator: Judges snapshots of it.
        records: Gets everything.
        schedule: When what happens.
        watch: Gets the current phase.
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
        self._agent = learner.agent
        self._slot = EpisodeSlot(env)
        self._evaluator = evaluator
        self._records = records
        self._schedule = schedule
        self._switch = watch.switch
        self._scores: list[float] = []  # of episodes since the last row of the log
        self._rehearsed = False
        self._answer: Callable[[], Action] | None = None  # the action of this round, once it is there
        self._action: Action | None = None

    @property
    def finished(self) -> bool:
        """All steps are done, and the last evaluation too."""
        return self._out_of_steps and not self._evaluation_due and not self._evaluator.busy

    @property
    def evaluating(self) -> bool:
        return self._evaluator.busy

    def start(self) -> None:
        """The first observation of a new run."""
        self._learner.begin(self._slot.reset())

    @property
    def needs_rehearsal(self) -> bool:
        """Whether the next round has the first update of this process."""
        return not self._rehearsed and self._agent.updates_due(self.progress.agent_steps + 1) > 0

    def rehearse(self) -> None:
        """Does what makes the first update slow, at a place where it can be interrupted."""
        with self._learner.stream():
            self._agent.rehearse(self._learner.replay)
        self._rehearsed = True

    def get_ready(self) -> None:
        """Does what could fail in the first steps of a run that goes on, and changes nothing.

        The first update is tried where some were made before, or where it comes next; where neither is so,
        replay may hold nothing yet that it could learn from.
        """
        self._require_windows()
        shape = self._slot.observation.shape
        with self._learner.stream():
            self._agent.get_ready_to_act(shape)
            if self._agent.updates or self.needs_rehearsal:
                self._agent.get_ready_to_update(self._learner.replay)
                self._rehearsed = True
        self._evaluator.get_ready(shape)

    def _require_windows(self) -> None:
        """A UserError where the next update will find nothing to learn from, as far as that is certain."""
        begin = self.progress.agent_steps + 1
        steps = range(begin, self._schedule.agent_steps + 1)
        first = next((step for step in steps if self._agent.updates_due(step)), None)
        if first is not None and (first == begin or first <= self._agent.config.longest_horizon):
            self._agent.require_windows(self._learner.replay)

    # --- a round --------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Begins an evaluation if one is due, then a step of training unless it has to wait for one."""
        if self._evaluation_due and not self._evaluator.busy:
            self._switch("evaluate")
            self._begin_evaluation()
        if not self._out_of_steps and not self._must_wait:
            self._switch("act")
            slot, agent_steps = self._slot, self.progress.agent_steps
            with self._learner.stream():
                self._answer = self._agent.act_async(
                    slot.observation, first=slot.first, agent_steps=agent_steps, explore=True
                )
            if self._learner.asynchronous:
                self._update()
        self._switch(Stopwatch.REST)

    def send_action(self) -> None:
        """Waits for the action; the environment starts to work."""
        if self._answer is not None:
            self._switch("act")
            self._action = finite(self._answer())
            self._switch("environment")
            self._slot.env.begin_step(self._action)
        self._switch(Stopwatch.REST)

    def finish_round(self) -> None:
        """Lets updates and an evaluation advance; waits for the environment and stores what it did."""
        stepping = self._answer is not None
        if stepping and not self._learner.asynchronous:
            self._update()
        if self._evaluator.busy:
            self._switch("evaluate")
            self._on_evaluation(self._evaluator.advance(wait=not stepping))
        if stepping:
            self._finish_step()
        self._answer = None
        self._switch(Stopwatch.REST)

    def _update(self) -> None:
        """The updates that follow the step of this round."""
        self._switch("update")
        agent_steps = self.progress.agent_steps + 1
        for _ in range(self._agent.updates_due(agent_steps)):
            self._learner.update(agent_steps)

    def _finish_step(self) -> None:
        assert self._action is not None
        self._switch("environment")
        step = self._slot.finish_step()
        self._switch("store")
        self._learner.add(self._action, step)
        self.progress.agent_steps += 1
        self.progress.frames += step.frames
        if step.last:
            self._switch("environment")
            self._close_episode()
            self._learner.begin(self._slot.reset())
        self._switch("log")
        if self.progress.agent_steps % self._schedule.log_every == 0:
            self._log()

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Between two rounds: everything but the learner."""
        slot = self._slot
        episode = {
            "episode_score": slot.score,
            "episode_steps": slot.agent_steps,
            "episode_frames": slot.frames,
        }
        return {
            "progress": dict(vars(self.progress)) | episode,
            "scores": list(self._scores),
            "environment": self._slot.env.snapshot(),
            "evaluator": self._evaluator.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Into a fresh environment and evaluator; then the run continues without `start`."""
        progress = dict(state["progress"])
        self._slot.score = progress.pop("episode_score")
        self._slot.agent_steps = progress.pop("episode_steps")
        self._slot.frames = progress.pop("episode_frames", 0)  # older checkpoints lack it
        self.progress = Progress(**progress)
        self._scores = list(state["scores"])
        self._slot.current = self._slot.env.restore(state["environment"])
        self._evaluator.load_state_dict(state["evaluator"])

    # --- what is due ----------------------------------------------------------------------------

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

    # --- what is written down -------------------------------------------------------------------

    def _close_episode(self) -> None:
        progress, episode = self.progress, self._slot.episode()
        progress.episodes += 1
        self._scores.append(episode.score)
        self._records.episode(
            {
                "agent_steps": progress.agent_steps,
                "frames": progress.frames,
                "episode": progress.episodes,
                "score": episode.score,
                "episode_steps": episode.agent_steps,
                "ended": episode.ended,
                "fault": episode.fault,
            }
        )

    def _log(self) -> None:
        progress = self.progress
        with self._learner.stream():
            metrics = self._agent.metrics()
        self.latest = {
            "agent_steps": progress.agent_steps,
            "frames": progress.frames,
            "episodes": progress.episodes,
            "score": fmean(self._scores) if self._scores else float("nan"),
            **metrics,
        }
        self._scores = []
        self._records.train(self.latest)

    def _begin_evaluation(self) -> None:
        progress = self.progress
        snapshot = PolicySnapshot(progress.agent_steps, progress.frames, self._learner.policy_weights())
        episodes = self._schedule.final_episodes if self._out_of_steps else None
        self._evaluator.begin(snapshot, episodes)
        progress.evaluated_at = progress.agent_steps

    def _on_evaluation(self, evaluation: Evaluation | None) -> None:
        if evaluation is None:
            return
        score, progress = evaluation.mean_score, self.progress
        best = progress.best_score is None or score > progress.best_score
        progress.last_score = score
        progress.best_score = score if best else progress.best_score
        self._records.evaluation(evaluation, best=best)
