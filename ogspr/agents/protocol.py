"""What an agent needs from the world, and what the world may expect from an agent.

Structural types: nothing inherits from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ogspr.types import Action, TimeStep, UInt8Array, Window

T = TypeVar("T")
State = dict[str, Any]  # nested dicts of tensors and JSON values


class WindowSource(Protocol):
    """Replay, as an agent sees it."""

    def draw(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        """For each (horizon, numbers in [0, 1) of shape (B,)) a window; all share one `frames`."""
        ...

    def set_priorities(self, starts: Tensor, priorities: Tensor, skip: Tensor) -> None:
        """New priorities of the steps that were drawn; none where `skip` (0-d) is 1."""
        ...

    def mean_absolute_reward(self) -> Tensor: ...


class Accelerator(Protocol):
    """How tensor code is run: plainly, compiled, as a CUDA graph. The agent does not know which."""

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A pure tensor function, made fast."""
        ...

    def step(
        self, procedure: Callable[[], None], generator: torch.Generator | None = None
    ) -> Callable[[], None]:
        """A procedure over fixed tensors, made fast; its random numbers come from `generator`."""
        ...

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Runs functions that do not depend on each other, side by side where that is possible."""
        ...


class Agent(Protocol):
    """A method that learns from windows of replay."""

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        """An action for the environment. Observations and actions may have a leading batch dimension."""
        ...

    def action_vector(self, action: Action) -> Any:
        """An action of the environment as replay stores it."""
        ...

    def updates_due(self, agent_steps: int) -> int:
        """How many updates follow the agent step number `agent_steps` (the first is 1)."""
        ...

    def update(self, replay: WindowSource) -> None:
        """One update from the windows it draws; waits for nothing."""
        ...

    def metrics(self) -> dict[str, float]:
        """Means since the last call; waits for the device."""
        ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class EpisodeSink(Protocol):
    """Replay, as the loop sees it."""

    def begin(self, first: TimeStep) -> None: ...

    def add(self, action: Any, step: TimeStep) -> None: ...
