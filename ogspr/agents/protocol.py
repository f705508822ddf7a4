"""What an agent needs from the world, and what the world may expect from an agent.

Structural types: nothing inherits from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.failures import FailedUpdate
from ogspr.types import Action, UInt8Array, Window

T = TypeVar("T")
State = dict[str, Any]  # nested dicts of tensors and JSON values


Wanted = Sequence[tuple[int, Tensor]]
"""For each batch of windows its horizon, and numbers in [0, 1) of shape (B,)."""
DrawWindows = Callable[[Wanted], list[Window]]


class WindowSource(Protocol):
    """Replay, as an agent sees it."""

    def valid_starts(self, horizon: int) -> int:
        """How many windows of `horizon` steps there are."""
        ...

    def draw(self, wanted: Wanted) -> list[Window]:
        """The windows that are wanted; all share one `frames`."""
        ...

    def peek(self, wanted: Wanted) -> list[Window]:
        """The same for whoever only looks: nothing that an update draws becomes another."""
        ...

    def set_priorities(self, starts: Tensor, priorities: Tensor, skip: Tensor) -> None:
        """New priorities of the steps that were drawn; none where `skip` (0-d) is 1."""
        ...

    def finish_drawing(self) -> None:
        """What goes on beside the update comes to an end; part of `set_priorities`."""
        ...

    def mean_absolute_reward(self) -> Tensor: ...

    def changed_by_updates(self) -> Sequence[Tensor]:
        """The tensors that drawing and new priorities change."""
        ...


@dataclass(frozen=True)
class Procedure:
    """Tensor code over fixed tensors, with everything that a call changes: so a call can be rehearsed."""

    run: Callable[[], None]
    changes: Callable[[], Sequence[Tensor]] = tuple
    """The tensors that a call changes and that matter to the next one."""
    generator: torch.Generator | None = None
    """Where its random numbers come from."""


class Step(Protocol):
    """A procedure as an accelerator runs it."""

    def rehearse(self) -> None:
        """Gets ready what makes the first call slow; changes nothing. May be left out."""
        ...

    def __call__(self) -> None: ...


class Runner(Protocol):
    """How tensor functions are run."""

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A pure tensor function, made fast."""
        ...

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Runs functions that do not depend on each other, side by side where that is possible."""
        ...


class Accelerator(Runner, Protocol):
    """How tensor code is run: plainly, compiled, as a CUDA graph. The agent does not know which."""

    def step(self, procedure: Procedure) -> Step:
        """A procedure, made fast."""
        ...


class Agent(Protocol):
    """A method that learns from windows of replay."""

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        ...

    def ask(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Callable[[], Action]:
        """For an action for the environment, which calling the result waits for, before the next question.

        Updates may be made in between: they change nothing about the answer. Observations and actions may
        have a leading batch dimension.
        """
        ...

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        """An action of the environment as replay stores it."""
        ...

    def updates_due(self, agent_steps: int) -> int:
        """How many updates follow the agent step number `agent_steps` (the first is 1)."""
        ...

    def update(self, replay: WindowSource) -> None:
        """One update from the windows it draws; waits for nothing."""
        ...

    def rehearse(self, replay: WindowSource) -> None:
        """Gets ready what makes the first update slow; changes nothing. May be left out."""
        ...

    def phases(self, replay: WindowSource) -> dict[str, Step]:
        """An update cut off after each of its phases, for measuring."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means since the last call; waits for the device."""
        ...

    @property
    def failed_updates(self) -> int:
        """Updates that were left out because a number was not finite, as far as the host has heard."""
        ...

    def last_failure(self) -> FailedUpdate: ...

    def forget_failures(self) -> None:
        """The row of failures is over."""
        ...

    def set_learning_rate(self, rate: float) -> None: ...

    def policy_weights(self) -> dict[str, Tensor]:
        """What a `Policy` of the same configuration needs to act as this agent does now; not copies."""
        ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Policy(Protocol):
    """Acts without learning."""

    def act(self, observation: UInt8Array, rng: np.random.Generator) -> Action:
        """An action as in evaluation; observations and actions may have a leading batch dimension.

        `rng` is for policies that draw their actions.
        """
        ...

    def load_weights(self, weights: Mapping[str, Tensor]) -> None: ...


class Representation(Protocol):
    """What a method has learned to see, frozen."""

    def encode(self, observations: UInt8Array, actions: Action) -> tuple[Tensor, Tensor]:
        """Latent states h (N, D) and state-action representations z (N, Z), on its device, without gradients.

        Observations are (N, C, H, W), actions those of the environment, one for each.
        """
        ...


class AgentConfig(Protocol):
    """What everybody may ask a method's configuration for; a frozen dataclass."""

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window that is drawn from replay."""
        ...

    @property
    def random_steps(self) -> int:
        """Agent steps with random actions, and without updates, at the start."""
        ...

    @property
    def tolerated_failures(self) -> int:
        """Updates in a row that may be left out because a number was not finite."""
        ...
