"""Where the numbers of a run go besides its csv files: TensorBoard, Weights & Biases, trackio."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ogspr.errors import UserError
from ogspr.records.files import NewFiles, make_inner_folder, user_io_errors

_SUFFIX = ".ogspr"


class Sink(Protocol):
    """Takes numbers by name, at a number of agent steps."""

    def open(self, files: NewFiles) -> None:
        """Before the first number; a file that it writes is one of `files`."""

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None:
        """After it was opened."""


class TensorBoard:
    """An event file, written at once: a library's thread would die silently on a full disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, files: NewFiles) -> None:
        from tensorboardX.record_writer import RecordWriter

        make_inner_folder(self._folder)
        # A resumed run is logged from its beginning.
        for earlier in self._folder.glob(f"*{_SUFFIX}"):
            files.instead_of(earlier)
        self._path = self._folder / f"events.out.tfevents.{time.time_ns()}{_SUFFIX}"
        with user_io_errors(self._path):
            self._records = RecordWriter(str(files.begin(self._path)))
        self._write(file_version="brain.Event:2")

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        numbers = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=agent_steps, summary=Summary(value=numbers))

    def close(self) -> None:
        with user_io_errors(self._path):
            self._records.close()

    def _write(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        with user_io_errors(self._path):
            self._records.write(Event(wall_time=time.time(), **fields).SerializeToString())
            self._records.flush()


class WeightsAndBiases:
    """One run of a project; offline where the user says so (WANDB_MODE=offline)."""

    def __init__(
        self, project: str, folder: Path, name: str, identity: str, settings: dict[str, Any]
    ) -> None:
        self._start = partial(
            _optional("wandb", "--keep.wandb").init,
            project=project,
            dir=str(folder),
            id=identity,
            name=name,
            config=settings,
            resume="allow",
            reinit="create_new",
            # It would ask git about the current folder, where a repository can name programs for git to run.
            settings={"disable_git": True},
        )

    def open(self, files: NewFiles) -> None:  # noqa: ARG002
        self._run = self._start()
        # An evaluation arrives after later rows of the log; by its own count, steps may not go back.
        self._run.define_metric("agent_steps")
        self._run.define_metric("*", step_metric="agent_steps")

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        self._run.log({"agent_steps": agent_steps, **values})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """One run of a project, on this machine."""

    def __init__(self, project: str, name: str, identity: str, settings: dict[str, Any]) -> None:
        self._start = partial(
            _optional("trackio", "--keep.trackio").init,
            project=project,
            name=f"{name}-{identity}",
            config=settings,
            resume="allow",
            embed=False,
        )

    def open(self, files: NewFiles) -> None:  # noqa: ARG002
        self._run = self._start()

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        self._run.log({"agent_steps": agent_steps, **values})

    def close(self) -> None:
        self._run.finish()


def known(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The numbers among `values` that are there, with names like `train/value_loss`."""
    return {
        f"{prefix}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and name != "agent_steps" and not math.isnan(value)
    }


def _optional(module: str, option: str) -> Any:
    found = find_spec(module)
    if found is None or found.origin is None:  # a folder of that name, such as wandb leaves behind
        raise UserError(f"{option} needs one more package: pip install {module}.")
    return import_module(module)
