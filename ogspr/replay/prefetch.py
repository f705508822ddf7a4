"""Windows one update ahead: while an update computes, the frames of the next one come from main memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ogspr.types import Draw, Window

_NUMBERS = tuple(name for name in Window._fields if name != "frames")  # frames are shared
Wanted = Sequence[tuple[Draw, Tensor]]


class Prefetcher:
    """Hands out the windows drawn at the call before, and copies those of this call meanwhile.

    So windows are sampled with priorities that are one update old. All work is queued, nothing waits. If
    a method has several kinds of updates, each kind has its own call before.

    Args:
        draw: Draws windows whose frames lie in main memory.
        device: The GPU that reads them.
    """

    def __init__(self, draw: Callable[[Wanted], list[Window]], device: torch.device) -> None:
        self._draw = draw
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._coming: dict[str, list[Window]] = {}  # by kind of call: being filled
        self._handed_out: dict[str, list[Window]] = {}  # in use by an update

    def next(self, wanted: Wanted) -> list[Window]:
        """The windows asked for by the last call of this kind; the very first call gets its own."""
        kind = "+".join("x".join(str(int(setting)) for setting in draw) for draw, _ in wanted)
        if kind not in self._coming:
            self._coming[kind] = self._fetched(wanted)
            self._handed_out[kind] = self._fetched(wanted)
        _copy(self._handed_out[kind], self._coming[kind])
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            _copy(self._coming[kind], self._fetched(wanted))
        return self._handed_out[kind]

    def join(self) -> None:
        """From here on the current stream runs after the copy."""
        torch.cuda.current_stream().wait_stream(self._stream)

    def tensors(self) -> list[Tensor]:
        """What is on its way."""
        return list(self.state_dict().values())

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"{kind}.{place}.{name}": getattr(window, name)
            for kind, windows in self._coming.items()
            for place, window in enumerate(windows)
            for name in ("frames", *_NUMBERS)
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Before the first call, or after calls for the same draws."""
        for kind in dict.fromkeys(name.partition(".")[0] for name in state):
            if not all(f"{kind}.0.{name}" in state for name in _NUMBERS):
                continue  # of a version that stored less of a window: the first call gets its own
            saved = self._saved(kind, state)
            if kind in self._coming:
                _copy(self._coming[kind], saved)
            else:
                # All windows of a call share one tensor of frames.
                self._coming[kind] = [window._replace(frames=saved[0].frames) for window in saved]
                self._handed_out[kind] = copy.deepcopy(self._coming[kind])

    def _saved(self, kind: str, state: dict[str, Tensor]) -> list[Window]:
        count = len({name.split(".")[1] for name in state if name.partition(".")[0] == kind})
        return [
            Window(
                **{name: state[f"{kind}.{place}.{name}"].to(self._device) for name in ("frames", *_NUMBERS)}
            )
            for place in range(count)
        ]

    def _fetched(self, wanted: Wanted) -> list[Window]:
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
