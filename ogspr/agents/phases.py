"""An update in four phases, run as a whole or cut off after one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents.failures import FailureWatch
from ogspr.agents.protocol import Accelerator, Procedure, Step, WindowSource
from ogspr.agents.state import Parts


@dataclass(frozen=True)
class Phases:
    """Each phase is given what the one before it found; only the last one changes anything."""

    sample: Callable[[WindowSource], Any]
    forward: Callable[[Any], Any]
    backward: Callable[[Any], Any]
    finish: Callable[[WindowSource, Any], None]

    def __call__(self, replay: WindowSource) -> None:
        """The whole update."""
        self.finish(replay, self.backward(self.forward(self.sample(replay))))

    def cut_off(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """The update until the end of each phase, by its name; the last one is whole."""

        def sample() -> None:
            self.sample(replay)
            replay.finish_drawing()

        def forward() -> None:
            self.forward(self.sample(replay))
            replay.finish_drawing()

        def backward() -> None:
            self.backward(self.forward(self.sample(replay)))
            replay.finish_drawing()

        return {
            "sample": sample,
            "forward": forward,
            "backward": backward,
            "optimise": partial(self, replay),
        }


@dataclass(frozen=True)
class FastUpdates:
    """Makes updates of one agent, or parts of them, fast."""

    accelerator: Accelerator
    parts: Callable[[], Parts]  # what updates change of the agent
    failures: Sequence[FailureWatch]  # through which the host hears of them
    generator: torch.Generator  # where their randomness comes from

    def whole(self, phases: Phases, replay: WindowSource) -> Step:
        return self.step(partial(phases, replay), replay)

    def cut_off(self, phases: Phases, replay: WindowSource) -> dict[str, Step]:
        """The update until the end of each phase, by its name, for measuring; only the last one learns."""
        return {name: self.step(run, replay) for name, run in phases.cut_off(replay).items()}

    def step(self, run: Callable[[], None], replay: WindowSource) -> Step:
        """With all that it changes: `parts`, what the host hears of, and replay."""

        def changes() -> list[Tensor]:
            ours = [tensor for part in self.parts().values() for tensor in part.values()]
            return [*ours, *(watch.arrived for watch in self.failures), *replay.changed_by_updates()]

        return self.accelerator.step(Procedure(run, changes, self.generator))
