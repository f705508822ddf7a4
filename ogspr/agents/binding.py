"""An agent and the one replay it learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ogspr.agents.protocol import Step, WindowSource
from ogspr.errors import UserError


class OnReplay:
    """A step over a replay, made at the first use.

    Args:
        make: Makes the step.
        horizons: Of the windows that it draws.
    """

    def __init__(self, make: Callable[[WindowSource], Step], horizons: Iterable[int]) -> None:
        self._make = make
        self._horizons = sorted({horizon for horizon in horizons if horizon})
        self._replay: WindowSource | None = None
        self._step: Step | None = None

    @property
    def replay(self) -> WindowSource | None:
        """The one it is made for; None before the first use."""
        return self._replay

    def __call__(self, replay: WindowSource) -> Step:
        """The step; refuses a replay from which nothing can be drawn yet, and all but the first one."""
        if self._step is None:
            self._replay, self._step = replay, self._make(replay)
        elif self._replay is not replay:
            raise ValueError("an agent learns from one replay; make another agent for another replay")
        for horizon in self._horizons:
            if not replay.valid_starts(horizon):
                raise UserError(
                    f"no window of {horizon} steps is stored to learn from; "
                    "take more random steps before the first update, or predict fewer."
                )
        return self._step
