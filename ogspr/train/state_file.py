"""A learner's state in one file: safetensors and JSON, so that reading it executes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from ogspr.agents.protocol import State
from ogspr.errors import UserError
from ogspr.records.files import make_folder, writing

_FORMAT = "ogspr-agent-1"


def save_state(path: Path, state: State) -> None:
    """Writes the file whole or not at all: a name that exists is complete."""
    make_folder(path.parent)
    unfinished = path.with_name(path.name + ".unfinished")
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in state["tensors"].items()}
    tensors["generator"] = state["generator"]
    values = {name: value for name, value in state.items() if name not in ("tensors", "generator")}
    data = save(tensors, {"format": _FORMAT, "values": json.dumps(values)})
    with writing(path):
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)


def load_state(path: Path) -> State:
    """What was saved; a UserError where the file is missing, damaged or something else."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
        tensors: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read the agent state {path}: {error}; use another file.") from None
    if header.get("format") != _FORMAT:
        raise UserError(f"{path} is no agent state of this version of ogspr (expected {_FORMAT}).")
    generator = tensors.pop("generator")
    values: dict[str, Any] = json.loads(header["values"])
    return {**values, "tensors": tensors, "generator": generator}
