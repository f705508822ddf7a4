"""Windows one update ahead: while an update computes, the frames of the next one come from main memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ogspr.types import Window

Draw = Callable[[Sequence[tuple[int, Tensor]]], list[Window]]


class Prefetcher:
    """Hands out the windows drawn at the call before, and copies those of this call meanwhile.

    So windows are drawn by the priorities of one update earlier. All work is queued, nothing waits.

    Args:
        draw: Draws windows whose frames lie in main memory.
        device: The GPU that reads them.
    """

    def __init__(self, draw: Draw, device: torch.device) -> None:
        self._draw = draw
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._coming: list[Window] = []  # being filled
        self._handed_out: list[Window] = []  # in use by the update

    def next(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        """The windows asked for by the last call; the very first call gets its own."""
        if not self._coming:
            self._coming = self._fetched(wanted)
            self._handed_out = self._fetched(wanted)
        _copy(self._handed_out, self._coming)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            _copy(self._coming, self._fetched(wanted))
        return self._handed_out

    def join(self) -> None:
        """From here on the current stream runs after the copy."""
        torch.cuda.current_stream().wait_stream(self._stream)

    def _fetched(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        """Windows whose frames are copies on the GPU, one after the other."""
        drawn = self._draw(wanted)
        rows = torch.cat([window.rows.flatten() for window in drawn])
        frames = drawn[0].frames.index_select(0, rows)
        fetched, begin = [], 0
        for window in drawn:
            places = torch.arange(begin, begin + window.rows.numel(), device=rows.device)
            fetched.append(window._replace(frames=frames, rows=places.view(window.rows.shape)))
            begin += window.rows.numel()
        return fetched


def _copy(into: list[Window], windows: list[Window]) -> None:
    """In place, the frames they share once."""
    into[0].frames.copy_(windows[0].frames)
    for to, window in zip(into, windows, strict=True):
        for name in ("starts", "rows", "actions", "rewards", "alive"):
            getattr(to, name).copy_(getattr(window, name))
