"""One run of a session: what was asked for, the seed that trains, and how its state is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.files import FileStamp, make_inner_folder
from ogspr.records.run import RunFolder
from ogspr.records.tree import load_tree, save_tree
from ogspr.training.evaluation import Evaluation
from ogspr.training.learner import Learner
from ogspr.training.options import TrainOptions
from ogspr.training.run_records import RunRecords
from ogspr.training.saved_run import RunConfig
from ogspr.training.state_file import (
    as_arrays,
    as_tensors,
    generator_states,
    set_generator_states,
)
from ogspr.training.trainer import Trainer

_REPLAY_KIND = "ogspr-replay-1"
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
            self._pieces.append(
                save_tree(self._folder / f"{first:012d}-{end:012d}.safetensors", tree, _REPLAY_KIND)
            )
            first = end
        self._pieces = [piece for piece in self._pieces if _end(piece) > replay.oldest]
        return list(self._pieces)

    def restore(self, learner: Learner) -> None:
        """Puts everything back into a replay whose state was loaded."""
        for piece in self._pieces:
            stored = as_tensors(load_tree(self._folder / piece.name, _REPLAY_KIND))
            learner.put_back(stored.pop("first"), stored)


def _end(piece: FileStamp) -> int:
    return int(piece.name.partition(".")[0].partition("-")[2])


@dataclass(frozen=True)
class Request:
    """What a user asked for."""

    task: str
    preset: str
    seeds: tuple[int, ...]
    options: TrainOptions[Any]
    folders: tuple[Path, ...]  # one for each seed
    allow_changes: bool = False  # resume a run although its settings differ


class Listener:
    """Called during a session; this one ignores everything."""

    def line(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None: ...

    def round(self, runs: Sequence[Run]) -> None:
        """After every round; called very often."""


@dataclass
class Run:
    """One seed."""

    config: RunConfig
    folder: RunFolder
    learner: Learner
    trainer: Trainer
    records: RunRecords
    checkpoints: Checkpoints
    replay_store: ReplayStore
    options: TrainOptions[Any]
    found: Checkpoint | None  # from which it resumes
    logged: dict[str, float] = field(default_factory=dict)  # the last row of the log that is in system.csv

    def save(self, *, last: bool = False) -> None:
        """A checkpoint of the state between two rounds; the last one of a run may drop its replay."""
        drop = last and self.options.keep.replay == "until-done"
        pieces = None if drop else self.replay_store.extend(self.learner)
        state: dict[str, Any] = {
            "learner": as_arrays(self.learner.state_dict()),
            "replay": as_arrays(self.learner.replay_state_dict()),
            "trainer": self.trainer.state_dict(),
            "generators": generator_states(),
            "records": self.records.state_dict(),
        }
        self.checkpoints.save(self.trainer.progress.agent_steps, state, pieces, finished=last)

    def restore(self, state: Mapping[str, Any]) -> None:
        """What `save` has saved, into a run in which nothing has happened yet."""
        self.learner.load_state_dict(as_tensors(state["learner"]))
        self.learner.load_replay_state_dict(as_tensors(state["replay"]))
        self.replay_store.restore(self.learner)
        self.trainer.load_state_dict(state["trainer"])
        set_generator_states(state["generators"])
