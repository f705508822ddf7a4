"""Whose code runs: what is installed and what a user names, never what merely lies in the current folder.

Python looks for modules in the folder a process is started in, before all other places, for `python -m` and
`python -c`: the ways in which multiprocessing and torch start processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from ogspr.errors import UserError

_SAFE_PATH = "PYTHONSAFEPATH"
_OURS = "ogspr"  # to Python any value means the same; this one says who set it


@dataclass
class _Blocks:
    """Those that are open, of all threads: the environment belongs to the whole process."""

    count: int = 0
    before: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_blocks = _Blocks()


@contextlib.contextmanager
def current_folder_ignored() -> Iterator[None]:
    """Python processes that are started inside do not look for modules in the folder they are started in."""
    with _blocks.lock:
        if _blocks.count == 0:
            _blocks.before = os.environ.get(_SAFE_PATH)
        _blocks.count += 1
        os.environ[_SAFE_PATH] = _blocks.before or _OURS
    try:
        yield
    finally:
        with _blocks.lock:
            _blocks.count -= 1
            if _blocks.count == 0:
                os.environ.pop(_SAFE_PATH, None)
                if _blocks.before is not None:
                    os.environ[_SAFE_PATH] = _blocks.before


def refuse_ignored_environment() -> None:
    """Without environment variables there is no way to tell processes where not to look."""
    if sys.flags.ignore_environment and not sys.flags.safe_path:
        raise UserError(
            "Python was started with -E, so its processes would run modules of the current folder; "
            "add -P, or omit -E."
        )


def trust(package: str) -> None:
    """Makes importable what a user has named: where it is not installed, the current folder is looked in.

    That folder comes last, so that nothing in it takes the place of what is installed.
    """
    first, here = _known_to_python(package), _in_current_folder(package)
    # Without an origin it is a folder without __init__.py, and one of several perhaps.
    if first is not None and first.origin is not None and (here is None or here.origin != first.origin):
        return
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]  # programs that the user's code starts find their modules as usual
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


def can_be_found(module: str) -> bool:
    """Whether it or its package is installed or in the current folder; nothing is executed for it."""
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    package = module.partition(".")[0]
    if package in sys.modules or _known_to_python(package) is not None:
        return True
    return _in_current_folder(package) is not None


def import_named(name: str) -> ModuleType | None:
    """The module that a user has named; None if there is none of that name."""
    if not can_be_found(name):
        return None
    trust(name.partition(".")[0])
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"{name} needs the module {error.name}, which is not installed.") from None
        return None


def hidden(module: str) -> str:
    """A sentence where the current folder has such a module and Python finds another one first; else none."""
    package = module.partition(".")[0]
    first, here = _known_to_python(package), _in_current_folder(package)
    if first is None or here is None or first.origin in (None, here.origin):
        return ""
    return f"The {package} in this folder is hidden by {first.origin}; give it another name."


def _known_to_python(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except ValueError:  # loaded in an unusual way, like the program itself
        return None


def _in_current_folder(package: str) -> ModuleSpec | None:
    return PathFinder.find_spec(package, [str(Path.cwd())])
