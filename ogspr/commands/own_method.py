"""`--method MODULE:NAME`: a method that is code of the user's own."""

from __future__ import annotations

import inspect
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

import tyro

from ogspr.agents.methods import MethodEntry
from ogspr.envs.trust import hidden, import_named
from ogspr.errors import UserError, unknown

OwnMethod: TypeAlias = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="MODULE:NAME",
        help="A method that is code of your own: an ogspr.MethodEntry, or a function that returns one.",
    ),
]
"""An option of every command that reads configurations of methods; `ogspr.cli` registers what it names."""


def own_method(name: str) -> MethodEntry:
    """What `--method` names, imported; a UserError if that is no method."""
    module_name, _, attribute = name.partition(":")
    file = PurePath(module_name)
    if file.suffix == ".py":
        module_name = ".".join(file.with_suffix("").parts)
        raise UserError(f"--method {name}: name the module, not its file: {module_name}:NAME.")
    if not module_name or not attribute:
        raise UserError(f"--method expects MODULE:NAME, got '{name}'.")
    module = import_named(module_name)
    if module is None:
        hint = hidden(module_name) or "It is looked for in this folder and on Python's path."
        raise UserError(f"--method {name}: there is no module {module_name}. {hint}")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if isinstance(value, MethodEntry)]
        raise unknown(f"method in {module_name}", attribute, known, hint=hidden(module_name))
    found = getattr(module, attribute)
    entry = found() if _needs_no_arguments(found) else found
    if not isinstance(entry, MethodEntry):
        kind = entry.__name__ if isinstance(entry, type) else f"a {type(entry).__name__}"
        raise UserError(
            f"--method {name} is {kind}; expected an ogspr.MethodEntry, or a function that returns one."
        )
    return entry


def _needs_no_arguments(found: Any) -> bool:
    if not callable(found) or isinstance(found, type):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True
