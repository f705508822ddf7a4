"""A learner: one agent and its replay on one device, several of which may share a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ogspr.agents.methods import method_of
from ogspr.agents.protocol import Agent, AgentConfig, Procedure, State
from ogspr.errors import UserError
from ogspr.records.run import write_json
from ogspr.replay import Replay, ReplayShape, StoragePlan, plan_storage
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator, on_stream
from ogspr.train.state_file import copy_to_host, save_state
from ogspr.types import Action, EnvSpec, Place, TimeStep, UInt8Array


def _nothing_asked() -> Action:
    raise RuntimeError("ask for an action first")


class Diverged(UserError):
    """Learning has led to numbers that are not finite, and will not come back from there."""


def finite(action: Action) -> Action:
    """The action itself; Diverged where a policy gives something that is none."""
    if not np.isfinite(action).all():
        raise Diverged("training stopped: the policy gives actions that are not finite.")
    return action


@dataclass(frozen=True)
class LearnerSettings:
    """What learners of one process have in common."""

    config: AgentConfig
    spec: EnvSpec
    capacity: int
    """Steps that a replay holds."""
    device: torch.device
    execution: Execution
    place: Place | None = None
    """Where replay keeps its frames; None: where they fit best."""


class Learner:
    """Acts, stores and updates on a CUDA stream of its own (on a CPU, in order).

    Args:
        settings: What it learns, and how.
        place: Where its frames lie.
        seed: Decides everything that is left to chance, on a GPU up to the order of sums in its libraries.
        state_folder: Where failed updates are written down, and its state before it gives up.
        report: Told about updates that were left out.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        *,
        place: Place,
        seed: int,
        state_folder: Path,
        report: Callable[[str], None],
    ) -> None:
        device = settings.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        accelerator = make_accelerator(settings.execution, device)
        with on_stream(self._stream):
            self.agent: Agent = (
                method_of(settings.config)
                .makers()
                .agent(settings.config, settings.spec, seed=seed, device=device, accelerator=accelerator)
            )
            shape = replay_shape(settings)
            self.replay = Replay(
                shape, device, accelerator.function, place, lambda store: accelerator.step(Procedure(store))
            )
        self.spec = settings.spec
        self.place = place
        self._state_folder = state_folder
        self._report = report
        self._tolerated_failures = settings.config.tolerated_failures
        self._failures_reported = 0
        self._answer: Callable[[], Action] = _nothing_asked
        self._updates_planned = 0

    def begin(self, first: TimeStep) -> None:
        with on_stream(self._stream):
            self.replay.begin(first)

    def add(self, action: Action, step: TimeStep) -> None:
        with on_stream(self._stream):
            self.replay.add(self.agent.action_vector(action), step)

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        self.ask(observation, agent_steps=agent_steps, explore=explore)
        return self.action()

    def ask(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> None:
        """For an action; `action` waits for it."""
        with on_stream(self._stream):
            self._answer = self.agent.ask(observation, agent_steps=agent_steps, explore=explore)

    def action(self) -> Action:
        """The one that was asked for; once."""
        answer, self._answer = self._answer, _nothing_asked
        return finite(answer())

    def plan_updates(self, agent_steps: int) -> None:
        """Those that follow the agent step number `agent_steps`.

        A GPU is given them at once, so that it has something to do while others hear of the action. Elsewhere
        they would keep the action waiting: `make_updates` makes them.
        """
        self._updates_planned = self.updates_due(agent_steps)
        if self._stream is not None:
            self.make_updates()

    def make_updates(self) -> None:
        """Those that are planned and not made yet."""
        while self._updates_planned:
            self._updates_planned -= 1
            self.update()

    def update(self) -> None:
        """One update; waits for nothing, unless an update before failed."""
        with on_stream(self._stream):
            self.agent.update(self.replay)
            if self.agent.failed_updates != self._failures_reported:
                self._tell_failure()

    def updates_due(self, agent_steps: int) -> int:
        """How many updates follow the agent step number `agent_steps`."""
        return self.agent.updates_due(agent_steps)

    def rehearse(self) -> None:
        """Gets ready what makes the first update slow; interrupted, nothing has changed."""
        with on_stream(self._stream):
            self.agent.rehearse(self.replay)

    def metrics(self) -> dict[str, float]:
        with on_stream(self._stream):
            return self.agent.metrics()

    def set_learning_rate(self, rate: float) -> None:
        with on_stream(self._stream):
            self.agent.set_learning_rate(rate)

    def state_dict(self) -> State:
        """The agent's state after every update so far: copies, on the host."""
        with on_stream(self._stream):
            return copy_to_host(self.agent.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Goes on from a saved state; replay is not part of it."""
        with on_stream(self._stream):
            self.agent.load_state_dict(state)
        self._failures_reported = self.agent.failed_updates

    def policy_weights(self) -> dict[str, Tensor]:
        """What acting needs, after every update so far: copies, on the host."""
        with on_stream(self._stream):
            return copy_to_host(self.agent.policy_weights())

    def replay_state_dict(self) -> State:
        """Replay's state without what it stores: copies, on the host."""
        with on_stream(self._stream):
            return copy_to_host(self.replay.state_dict())

    def load_replay_state_dict(self, state: State) -> None:
        with on_stream(self._stream):
            self.replay.load_state_dict(state)

    def stored(self, first: int, end: int) -> dict[str, Tensor]:
        """The observations number `first` to `end` - 1 of replay: copies, on the host."""
        with on_stream(self._stream):
            return copy_to_host(self.replay.stored(first, end))

    def put_back(self, first: int, stored: dict[str, Tensor]) -> None:
        """What `stored` gave, back into replay."""
        with on_stream(self._stream):
            self.replay.put_back(first, **stored)

    def phases(self) -> dict[str, Callable[[], None]]:
        """An update cut off after each of its phases, for measuring."""
        procedures = self.agent.phases(self.replay)
        return {name: partial(self.run, procedure) for name, procedure in procedures.items()}

    def run(self, procedure: Callable[[], None]) -> None:
        """Something else on this learner's stream, after what is queued there."""
        with on_stream(self._stream):
            procedure()

    def _tell_failure(self) -> None:
        failure = self.agent.last_failure()
        self._failures_reported = failure.total
        path = self._state_folder / "failed_update.json"
        write_json(path, asdict(failure))
        self._report(f"{failure}; its batch is in {path}")
        if failure.in_a_row >= self._tolerated_failures:
            self.agent.forget_failures()  # who goes on from here begins a new row
            state = self._state_folder / "diverged.safetensors"
            save_state(state, self.agent.state_dict())
            raise Diverged(f"training stopped: {failure}; the last good state is in {state}.")


def make_learners(
    settings: LearnerSettings,
    seeds: Sequence[int],
    state_folders: Sequence[Path],
    *,
    announce: Callable[[str], None],
    warn: Callable[[str], None] | None = None,
) -> list[Learner]:
    """A learner for each seed; says how much memory their replays take before it takes it."""
    plan = plan_learners(settings, len(seeds))
    announce(str(plan))
    return [
        Learner(
            settings,
            place=plan.place,
            seed=seed,
            state_folder=folder,
            report=partial(_tell_of, warn or announce, seed),
        )
        for seed, folder in zip(seeds, state_folders, strict=True)
    ]


def _tell_of(tell: Callable[[str], None], seed: int, line: str) -> None:
    tell(f"seed {seed}: {line}")


def plan_learners(settings: LearnerSettings, count: int) -> StoragePlan:
    """Where the replays of `count` learners go; a UserError with the numbers where they do not fit."""
    return plan_storage(replay_shape(settings), settings.device, count, place=settings.place)


def replay_shape(settings: LearnerSettings) -> ReplayShape:
    spec = settings.spec
    return ReplayShape(
        capacity=settings.capacity,
        frame_shape=spec.frame_shape,
        frame_stack=spec.frame_stack,
        action_size=spec.actions.vector_size,
        longest_horizon=settings.config.longest_horizon,
    )
