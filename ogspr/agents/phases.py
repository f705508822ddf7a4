"""An update in four phases, run as a whole or cut off after one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ogspr.agents.protocol import WindowSource


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
