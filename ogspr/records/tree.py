"""A tree of JSON values and arrays in one file: safetensors, so that reading it executes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from ogspr.errors import UserError
from ogspr.records.files import FileStamp, open_to_read, write_atomic
from ogspr.types import Saved

Arrays = dict[str, npt.NDArray[Any]]
_HEADER = "ogspr"
_ARRAY = "__array__"  # in the tree, stands for the array of that name


def save_tree(path: Path, tree: Saved, kind: str) -> FileStamp:
    """Writes the file whole or not at all: a name that exists is complete. `kind` says what it holds."""
    arrays: Arrays = {}
    # One entry: several would come in an arbitrary order, and the same tree would give different files.
    outline = json.dumps({"kind": kind, "tree": _outline(tree, arrays)})
    return write_atomic(path, save(arrays, {_HEADER: outline}))


def load_tree(path: Path, kind: str) -> Any:
    """What was saved; a UserError where the file is missing, damaged or of another kind."""
    try:
        open_to_read(path).close()  # a pipe would keep it waiting
        with safe_open(path, framework="numpy") as file:
            header: dict[str, str] = file.metadata() or {}
        arrays: Arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}; use another file.") from None
    try:
        content = json.loads(header.get(_HEADER, '{"kind": "of none"}'))
        if content["kind"] != kind:
            raise UserError(f"{path} is not of the kind {kind}, but {content['kind']}.")
        return _filled(content["tree"], arrays)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"cannot read {path}: its structure is damaged ({error!r}); use another file."
        ) from None


def _outline(value: Saved, arrays: Arrays) -> Any:
    """The tree with names in place of arrays, which are put into `arrays`."""
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = np.array(value, order="C")  # ascontiguousarray would make a vector of a scalar
        return {_ARRAY: name}
    if isinstance(value, dict):
        return {key: _outline(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_outline(item, arrays) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a tree holds JSON values and arrays, not {type(value).__name__}")


def _filled(outline: Any, arrays: Arrays) -> Any:
    if isinstance(outline, dict):
        if _ARRAY in outline:
            return arrays[outline[_ARRAY]]
        return {key: _filled(item, arrays) for key, item in outline.items()}
    if isinstance(outline, list):
        return [_filled(item, arrays) for item in outline]
    return outline
