"""Settings as JSON values and back: frozen dataclasses, checked field by field."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ogspr.errors import UserError, unknown

T = TypeVar("T")


def plain(value: Any) -> Any:
    """A tree of dataclasses as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a tree of JSON values, each with the names that lead to it, joined by dots."""
    if not isinstance(tree, dict):
        yield path, tree
        return
    for name, value in tree.items():
        yield from flat(value, f"{path}.{name}" if path else str(name))


def changed(default: T, given: Any, where: str) -> T:
    """`default`, a dataclass, with the values of `given`; what it does not mention stays.

    `where` names the source in the UserError for a name that does not exist or a value of the wrong type.
    """
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: expected named settings, got {given!r}.")
    hints = typing.get_type_hints(type(default))
    known = [field.name for field in dataclasses.fields(default)]  # type: ignore[arg-type]
    values = {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"setting in {where}", str(name), known)
        here = f"{where}: {name}"
        values[name] = _typed(hints[name], value, here, getattr(default, name))
    return dataclasses.replace(default, **values)  # type: ignore[type-var]


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """One line for each value in which two trees of JSON values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in sorted(ours.keys() | theirs.keys())
            for line in differences(ours.get(name), theirs.get(name), f"{path}.{name}".lstrip("."))
        ]
    return [] if ours == theirs else [f"{path}: {theirs!r} was {ours!r}"]


def _typed(hint: Any, value: Any, where: str, default: Any = None) -> Any:  # noqa: PLR0911 (a case a type)
    """The value as the type says; JSON has no tuples, no paths, and does not tell 1 from 1.0."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeVar):
        hint = type(default)
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, value, where, default)
    if origin is typing.Literal:
        if value not in arguments:
            raise unknown(f"value in {where}:", str(value), [str(choice) for choice in arguments])
        return value
    if origin is tuple and isinstance(value, list | tuple):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) == len(value):
            return tuple(_typed(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    elif dataclasses.is_dataclass(hint):
        kind = typing.cast(type, hint)
        return changed(default if isinstance(default, kind) else kind(), value, where)
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise UserError(f"{where}: expected {_name(hint)}, got {value!r}.")


def _one_of(kinds: tuple[Any, ...], value: Any, where: str, default: Any) -> Any:
    """None only where it is allowed; else what the first other type makes of the value."""
    if value is None and types.NoneType in kinds:
        return None
    (kind, *_) = (kind for kind in kinds if kind is not types.NoneType)
    return _typed(kind, value, where, default)


def _name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint)) if typing.get_origin(hint) is None else str(hint)
