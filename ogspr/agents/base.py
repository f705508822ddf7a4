"""What agents of all methods do alike: act, count failures, save and load. Updates are their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ogspr.agents.behaviour import Behaviour
from ogspr.agents.binding import OnReplay
from ogspr.agents.failures import FailedUpdate, FailureWatch
from ogspr.agents.phases import FastUpdates, Phases
from ogspr.agents.protocol import Accelerator, State
from ogspr.agents.state import Chance, Parts, agent_state, load_agent_state
from ogspr.types import Action, UInt8Array


class AgentBase:
    """The part of an agent that knows nothing of its method.

    A base class, and the only one: parts to delegate to would leave a dozen one-line methods to be written in
    every agent. An agent makes its own parts first and hands them over.

    Args:
        behaviour: How it acts.
        chance: All of its random numbers.
        failures: Of each kind of update that it makes.
        parts: The tensors that decide what comes next, by part and name.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        chance: Chance,
        failures: Sequence[FailureWatch],
        parts: Callable[[], Parts],
        accelerator: Accelerator,
    ) -> None:
        self.updates = 0
        self._behaviour = behaviour
        self._chance = chance
        self._failures = failures
        self._parts = parts
        self._fast = FastUpdates(accelerator, parts, failures, chance.learning)

    def _on_replay(self, phases: Phases, *horizons: int) -> OnReplay:
        """A whole update, over windows of so many steps, as the accelerator runs it."""
        return OnReplay(partial(self._fast.whole, phases), horizons)

    def ask(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Callable[[], Action]:
        """For an action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy, and uniformly random during the first steps. Calling the result waits for the
        action, and not for what the device was given to do since.
        """
        return self._behaviour.ask(observation, agent_steps=agent_steps, explore=explore)

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return self._behaviour.vector(action)

    @property
    def failures_in_a_row(self) -> int:
        """Updates that were left out at the end because a number was not finite; an update late on a GPU."""
        return max(watch.in_a_row for watch in self._failures)

    @property
    def failed_updates(self) -> int:
        """All updates of any kind that were left out, as far as the host has heard."""
        return sum(watch.total for watch in self._failures)

    def forget_failures(self) -> None:
        """The rows of failures are over."""
        for watch in self._failures:
            watch.forget_row()

    def last_failure(self) -> FailedUpdate:
        """The last one of each kind of update that has failed, as one. Waits for the device."""
        reports = [watch.report() for watch in self._failures]
        real = [failure for failure in reports if failure.total]  # others have nothing to say
        return FailedUpdate(
            in_a_row=max((failure.in_a_row for failure in real), default=0),
            total=sum(failure.total for failure in real),
            numbers={name: value for failure in real for name, value in failure.numbers.items()},
            starts={name: places for failure in real for name, places in failure.starts.items()},
        )

    def state_dict(self) -> State:
        """Everything that decides what comes next, but for replay: tensors and JSON values."""
        return agent_state(self.updates, self._chance, self._parts())

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        self.updates = load_agent_state(state, self._chance, self._parts())
        for watch in self._failures:
            watch.tell_host()
