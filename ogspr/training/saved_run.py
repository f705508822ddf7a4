"""Runs on disk: the settings they were started with, and runs opened to look at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from ogspr.agents.methods import check_revision, method_named
from ogspr.errors import UserError
from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.run import RunFolder, read_json, write_json
from ogspr.records.settings_io import changed, differences, plain
from ogspr.training.options import TrainOptions, resume_critical
from ogspr.types import Place

FORMAT = 1


@dataclass(frozen=True)
class RunConfig:
    """What a run is."""

    task: str
    preset: str
    method: str
    seed: int
    capacity: int  # of its replay; stays as it was when the run started
    place: Place  # of its replay, likewise: frames in main memory are drawn one update ahead
    identity: str  # by which services that log runs know it
    options: dict[str, Any]  # TrainOptions as JSON values

    def train_options(self, source: str) -> TrainOptions[Any]:
        return changed(TrainOptions(method_named(self.method, source).config()), self.options, source)

    def changes(self, wanted: RunConfig) -> list[str]:
        """A line for each setting that decides results and would be another one."""
        lines = [
            line
            for name in ("method", "seed")
            for line in differences(getattr(self, name), getattr(wanted, name), name)
        ]
        return lines + differences(resume_critical(self.options), resume_critical(wanted.options))


def write_config(path: Path, config: RunConfig) -> None:
    about = {"format": FORMAT, "revision": method_named(config.method, str(path)).revision}
    write_json(path, about | plain(config))


def read_config(folder: RunFolder) -> RunConfig:
    """A UserError where there is none, or one that this version cannot read."""
    folder.require()
    content = read_json(folder.config)
    if content.get("format") != FORMAT:
        raise UserError(
            f"{folder.config} has format {content.get('format')}; this version of ogspr reads {FORMAT}."
        )
    values = {field.name: content.get(field.name) for field in fields(RunConfig)}
    kinds = (str, str, str, int, int, str, str, dict)
    for (name, value), kind in zip(values.items(), kinds, strict=True):
        if type(value) is not kind:
            raise UserError(f"{folder.config} is damaged: {name} is {value!r}; restore the file.")
    method_named(str(values["method"]), str(folder.config))
    check_revision(str(values["method"]), content, str(folder.path))
    config = RunConfig(**cast(dict[str, Any], values))
    config.train_options(str(folder.config))  # every name and type in it is right
    return config


@dataclass(frozen=True)
class SavedRun:
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


def open_run(path: Path, report: Callable[[str], None], *, with_replay: bool = False) -> SavedRun:
    """A UserError if it is not a run, or has no usable checkpoint.

    Args:
        report: Called with newer checkpoints that are damaged.
        with_replay: Whether a checkpoint is of use only with its replay.
    """
    folder = RunFolder(path)
    config = read_config(folder)
    options = config.train_options(str(folder.config))
    checkpoint = Checkpoints(folder, options.keep.checkpoints).newest_to_read(report, with_replay=with_replay)
    return SavedRun(path, config, options, checkpoint)


def is_complete(state: Mapping[str, Any], agent_steps: int) -> bool:
    """Whether a saved trainer had made `agent_steps` steps, and had finished the evaluation after them."""
    progress = state["progress"]
    evaluated = progress["evaluated_at"] == progress["agent_steps"] and state["evaluator"]["occasion"] is None
    return bool(progress["agent_steps"] >= agent_steps and evaluated)
