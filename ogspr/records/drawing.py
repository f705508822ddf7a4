"""Matplotlib without the settings of the current folder."""

from __future__ import annotations

import contextlib
from pathlib import Path


def load_matplotlib() -> None:
    """Imports matplotlib; to be called before anything of it is imported.

    It would prefer a matplotlibrc in the current folder to the user's own. Such a file names modules to
    import, and older versions of matplotlib evaluate expressions in it.
    """
    with contextlib.chdir(Path(__file__).parent):
        import matplotlib  # noqa: F401
