"""Runs, opened to look at them: nothing in their folders is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.run import RunFolder
from ogspr.train.options import TrainOptions
from ogspr.train.run_config import RunConfig, read_config
from ogspr.train.trainer import is_complete


@dataclass(frozen=True)
class OpenedRun:
    """One run, with the newest of its checkpoints that is whole."""

    path: Path
    config: RunConfig
    options: TrainOptions[Any]
    checkpoint: Checkpoint

    @property
    def agent_steps(self) -> int:
        """Of training, up to the checkpoint."""
        return self.checkpoint.agent_steps

    @property
    def finished(self) -> bool:
        """Whether nothing was left to do, the last evaluation neither."""
        return is_complete(self.checkpoint.state()["trainer"], self.options.agent_steps)


def open_run(path: Path, report: Callable[[str], None], *, with_replay: bool = False) -> OpenedRun:
    """A UserError where it is no run, or has no checkpoint that can be used.

    Args:
        report: Told about newer checkpoints that are damaged.
        with_replay: Whether a checkpoint is of use only with its replay.
    """
    folder = RunFolder(path)
    config = read_config(folder)
    options = config.train_options(str(folder.config))
    checkpoint = Checkpoints(folder, options.keep.checkpoints).newest_to_read(report, with_replay=with_replay)
    return OpenedRun(path, config, options, checkpoint)
