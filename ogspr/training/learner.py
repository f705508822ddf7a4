"""A learner: one agent and its replay on one device, several of which may share a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from ogspr.agents.agent import Agent
from ogspr.agents.protocol import AgentConfig, Procedure, State
from ogspr.device import Device
from ogspr.errors import Diverged
from ogspr.records.run import write_json
from ogspr.replay import Replay, ReplayShape, StoragePlan, plan_storage
from ogspr.training.graph import make_accelerator
from ogspr.training.options import Execution
from ogspr.training.state_file import copy_to_host, save_state
from ogspr.types import Action, EnvSpec, Place, TimeStep


@dataclass(frozen=True)
class LearnerSettings:
    """What learners of one process have in common."""

    config: AgentConfig
    spec: EnvSpec
    capacity: int
    """Steps that a replay holds."""
    device: Device
    execution: Execution
    place: Place | None = None
    """Where replay keeps its frames; None: where they fit best."""


class Learner:
    """An agent and its replay, whose work is queued on a stream of their own.

    Whoever calls the agent or the replay directly does so inside `with learner.stream():`.

    Args:
        settings: What it learns, and how.
        place: Where its frames lie.
        seed: Decides everything that is left to chance, on a GPU up to the order of sums in its libraries.
        state_folder: Where skipped updates are written down, and its state before it gives up.
        report: Called with skipped updates.
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
        device, spec = settings.device, settings.spec
        self.spec = spec
        self.place = place
        self.asynchronous = device.is_gpu
        """Whether an update returns before it is done."""
        self.stream = device.stream()
        accelerator = make_accelerator(settings.execution, device)
        with self.stream():
            self.agent = Agent(settings.config, spec, seed=seed, device=device, accelerator=accelerator)
            self.replay = Replay(
                replay_shape(settings),
                device,
                accelerator.function,
                place,
                lambda store: accelerator.step(Procedure(store)),
            )
        self._state_folder = state_folder
        self._report = report
        self._tolerated_failures = settings.config.tolerated_failures
        self._failures_reported = 0

    def begin(self, first: TimeStep) -> None:
        """Stores the first observation of an episode."""
        with self.stream():
            self.replay.begin(first)

    def add(self, action: Action, step: TimeStep) -> None:
        """Stores what an action led to."""
        with self.stream():
            self.replay.add(self.agent.action_vector(action), step)

    def update(self, agent_steps: int) -> None:
        """One update after `agent_steps` steps; waits for nothing, unless an update before failed."""
        with self.stream():
            self.agent.update(self.replay, agent_steps)
            if self.agent.failed_updates != self._failures_reported:
                self._report_failure()

    # --- saving: copies on the host, after every update so far ----------------------------------

    def state_dict(self) -> State:
        """The agent's state."""
        with self.stream():
            return copy_to_host(self.agent.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Continues from a saved state; replay is not part of it."""
        with self.stream():
            self.agent.load_state_dict(state)
        self._failures_reported = self.agent.failed_updates

    def policy_weights(self) -> dict[str, Tensor]:
        """What acting needs."""
        with self.stream():
            return copy_to_host(self.agent.policy_weights())

    def replay_state_dict(self) -> State:
        """Replay's state without the steps it stores."""
        with self.stream():
            return copy_to_host(self.replay.state_dict())

    def load_replay_state_dict(self, state: State) -> None:
        with self.stream():
            self.replay.load_state_dict(state)

    def stored(self, first: int, end: int) -> dict[str, Tensor]:
        """The observations number `first` to `end` - 1 of replay."""
        with self.stream():
            return copy_to_host(self.replay.stored(first, end))

    def put_back(self, first: int, stored: dict[str, Tensor]) -> None:
        """What `stored` gave, back into replay."""
        with self.stream():
            self.replay.put_back(first, **stored)

    def _report_failure(self) -> None:
        failure = self.agent.last_failure()
        self._failures_reported = failure.total
        path = self._state_folder / "failed_update.json"
        write_json(path, asdict(failure))
        self._report(f"{failure}; its batch is in {path}")
        if failure.in_a_row >= self._tolerated_failures:
            self.agent.forget_failures()  # a run that continues from here begins a new row
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
            report=partial(_report_for_seed, warn or announce, seed),
        )
        for seed, folder in zip(seeds, state_folders, strict=True)
    ]


def _report_for_seed(report: Callable[[str], None], seed: int, line: str) -> None:
    report(f"seed {seed}: {line}")


def plan_learners(settings: LearnerSettings, count: int) -> StoragePlan:
    """Where the replays of `count` learners go; a UserError with the numbers if they do not fit."""
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
