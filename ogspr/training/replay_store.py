"""Replay on disk, in pieces that are written once: a checkpoint costs what is new."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ogspr.records.files import FileStamp, make_inner_folder
from ogspr.records.tree import load_tree, save_tree
from ogspr.training.learner import Learner
from ogspr.training.state_file import as_arrays, as_tensors

_KIND = "ogspr-replay-1"
_PIECE_STEPS = 4096  # observations in a piece, at most


class ReplayStore:
    """The pieces of one replay. A piece holds the observations number `first` to `end` - 1.

    Args:
        folder: Where they lie.
        pieces: Those that exist already.
    """

    def __init__(self, folder: Path, pieces: Sequence[FileStamp] = ()) -> None:
        self._folder = folder
        self._pieces = list(pieces)

    def extend(self, learner: Learner) -> list[FileStamp]:
        """Writes what was stored since the last time; all pieces that replay consists of now."""
        make_inner_folder(self._folder)
        replay = learner.replay
        first = max(replay.oldest, _end(self._pieces[-1]) if self._pieces else 0)
        while first < replay.written:
            end = min(first + _PIECE_STEPS, replay.written)
            tree: dict[str, Any] = {"first": first, **as_arrays(learner.stored(first, end))}
            self._pieces.append(save_tree(self._folder / f"{first:012d}-{end:012d}.safetensors", tree, _KIND))
            first = end
        self._pieces = [piece for piece in self._pieces if _end(piece) > replay.oldest]
        return list(self._pieces)

    def restore(self, learner: Learner) -> None:
        """Puts everything back into a replay whose state was loaded."""
        for piece in self._pieces:
            stored = as_tensors(load_tree(self._folder / piece.name, _KIND))
            learner.put_back(stored.pop("first"), stored)


def _end(piece: FileStamp) -> int:
    return int(piece.name.partition(".")[0].partition("-")[2])
