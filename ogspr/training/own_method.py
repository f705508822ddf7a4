"""Methods that are code of a user's own, by name: `module:name`."""

from __future__ import annotations

import inspect
from pathlib import PurePath
from typing import Any

from ogspr.agents.methods import MethodEntry, register
from ogspr.envs.trust import hidden, import_named
from ogspr.errors import UserError, unknown


def own_method(name: str, option: str = "--method") -> MethodEntry:
    """What MODULE:NAME names, imported; a UserError, which names the option, if that is not a method."""
    module_name, _, attribute = name.partition(":")
    file = PurePath(module_name)
    if file.suffix == ".py":
        module_name = ".".join(file.with_suffix("").parts)
        raise UserError(f"{option} {name}: pass the module, not its file: {module_name}:NAME.")
    if not module_name or not attribute:
        raise UserError(f"{option} expects MODULE:NAME, got '{name}'.")
    module = import_named(module_name)
    if module is None:
        hint = hidden(module_name) or "It is searched for in this folder and on Python's path."
        raise UserError(f"{option} {name}: there is no module named {module_name}. {hint}")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if isinstance(value, MethodEntry)]
        raise unknown(f"method in {module_name}", attribute, known, hint=hidden(module_name))
    found = getattr(module, attribute)
    entry = found() if _needs_no_arguments(found) else found
    if not isinstance(entry, MethodEntry):
        kind = entry.__name__ if isinstance(entry, type) else f"a {type(entry).__name__}"
        raise UserError(
            f"{option} {name} is {kind}; expected an ogspr.MethodEntry, or a function that returns one."
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


def registered(method: MethodEntry | str) -> MethodEntry:
    """A method that a Python program gives, itself or by name, added to those there are."""
    entry = own_method(method, "method") if isinstance(method, str) else method
    register(entry)
    return entry
