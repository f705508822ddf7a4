"""Where the time of a training process goes."""

from __future__ import annotations

import time
from collections import defaultdict


class Stopwatch:
    """Seconds by phase. One phase begins where another ends, so all of them add up to the whole."""

    REST = "rest"  # between the phases that somebody named

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
