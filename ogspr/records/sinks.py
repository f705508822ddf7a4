"""Where the numbers of a run go beside its csv files: TensorBoard, Weights & Biases, trackio."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ogspr.errors import UserError


class Sink(Protocol):
    """Takes numbers by name, at a number of agent steps."""

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files; those of a resumed run hide what came after its checkpoint."""

    def __init__(self, folder: Path, agent_steps: int) -> None:
        from tensorboardX import SummaryWriter

        resumed = {"purge_step": agent_steps + 1} if agent_steps else {}
        self._writer = SummaryWriter(str(folder), flush_secs=30, **resumed)

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, agent_steps)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """One run of a project; offline where the user says so (WANDB_MODE=offline)."""

    def __init__(self, project: str, folder: Path, name: str, settings: dict[str, Any]) -> None:
        wandb = _optional("wandb", "--keep.wandb")
        self._run = wandb.init(
            project=project,
            dir=str(folder),
            id=_identifier(name),
            name=name,
            config=settings,
            resume="allow",
            reinit="create_new",
        )

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=agent_steps)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """One run of a project, on this machine."""

    def __init__(self, project: str, name: str, settings: dict[str, Any]) -> None:
        trackio = _optional("trackio", "--keep.trackio")
        self._run = trackio.init(project=project, name=name, config=settings, resume="allow", embed=False)

    def log(self, agent_steps: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=agent_steps)

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
    if find_spec(module) is None:
        raise UserError(f"{option} needs one more package: pip install {module}.")
    return import_module(module)


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
