"""Windows one update ahead: while an update computes, the frames of the next one come from main memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ogspr.types import Window

_NUMBERS = ("starts", "rows", "actions", "rewards", "alive")  # of a Window; frames are shared
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
        self._device = device
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

    def tensors(self) -> list[Tensor]:
        """What is on its way."""
        return [getattr(window, name) for window in self._coming for name in ("frames", *_NUMBERS)]

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"{place}.{name}": getattr(window, name)
            for place, window in enumerate(self._coming)
            for name in ("frames", *_NUMBERS)
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Before the first call, or after calls for windows of the same sizes."""
        count = len({name.partition(".")[0] for name in state})
        saved = [
            Window(**{name: state[f"{place}.{name}"].to(self._device) for name in ("frames", *_NUMBERS)})
            for place in range(count)
        ]
        if self._coming and saved:
            _copy(self._coming, saved)
        else:
            # All windows of a call share one tensor of frames.
            self._coming = [window._replace(frames=saved[0].frames) for window in saved]
            self._handed_out = copy.deepcopy(self._coming)

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
        for name in _NUMBERS:
            getattr(to, name).copy_(getattr(window, name))
