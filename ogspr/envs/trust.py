"""Whose code runs: what is installed and what a user names, never what merely lies in the current folder.

Python looks for modules in the folder a process is started in, before all other places, for `python -m` and
`python -c`: the ways in which multiprocessing and torch start processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
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


class NamedModules:
    """Finds in one folder the packages that a user has named, and what these import from there.

    It is asked after all other finders, so that nothing in the folder takes the place of what is installed.
    An entry of `sys.path` would be more: packages plug themselves in from there, and libraries that look for
    optional modules find them.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._named: set[str] = set()

    def name(self, package: str) -> None:
        self._named.add(package)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib` asks for it; modules inside of packages are found without this."""
        if path is not None or not (name in self._named or self._asked_by_them()):
            return None
        spec = PathFinder.find_spec(name, [self.folder])
        if spec is not None:
            self.name(name)
        return spec

    def _asked_by_them(self) -> bool:
        """Whether a module that was found here imports it, or Gymnasium makes what such a one registered."""
        importer = _importer()
        return importer.partition(".")[0] in self._named or importer == _GYMNASIUM_REGISTRY


_GYMNASIUM_REGISTRY = "gymnasium.envs.registration"


def _importer() -> str:
    """The module whose code is importing something."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and not name.startswith(("importlib", "_frozen_importlib")):
            return name
    return ""


def trust(package: str) -> None:
    """Makes importable what a user has named: where it is not installed, the current folder is looked in."""
    first, here = _known_to_python(package), _in_current_folder(package)
    if first is not None and (here is None or _place(here) != _place(first)):
        return
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]  # programs that the user's code starts find their modules as usual
    folder = str(Path.cwd())
    finders = [finder for finder in sys.meta_path if isinstance(finder, NamedModules)]
    finder = next((finder for finder in finders if finder.folder == folder), None)
    if finder is None:
        finder = NamedModules(folder)
        sys.meta_path.append(finder)
    finder.name(package)


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
    if first is None or here is None or _place(first) == _place(here):
        return ""
    return f"The {package} in this folder is hidden by {_place(first)}; give it another name."


def _place(spec: ModuleSpec) -> str:
    """Its file; of a folder without __init__.py that folder, or the first of several."""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), spec.name)


def _known_to_python(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except ValueError:  # loaded in an unusual way, like the program itself
        return None


def _in_current_folder(package: str) -> ModuleSpec | None:
    return PathFinder.find_spec(package, [str(Path.cwd())])
