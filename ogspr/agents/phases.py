"""An update in four phases, run as a whole or cut off after one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents.failures import FailureWatch
from ogspr.agents.protocol import Procedure, WindowSource
from ogspr.agents.state import Parts


def update_procedure(
    run: Callable[[], None],
    replay: WindowSource,
    parts: Callable[[], Parts],
    failures: Sequence[FailureWatch],
    generator: torch.Generator,
) -> Procedure:
    """An update, or part of one, with all that it changes: `parts`, what the host hears of, and replay."""

    def changes() -> list[Tensor]:
        ours = [tensor for part in parts().values() for tensor in part.values()]
        return [*ours, *(watch.arrived for watch in failures), *replay.changed_by_updates()]

    return Procedure(run, changes, generator)


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
