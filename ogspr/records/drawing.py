"""Matplotlib without the settings of the current folder, and its figures as files."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ogspr.records.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 150


def load_matplotlib() -> None:
    """Imports matplotlib; to be called before anything of it is imported.

    It would prefer a matplotlibrc in the current folder to the user's own. Such a file names modules to
    import, and older versions of matplotlib evaluate expressions in it.
    """
    with contextlib.chdir(Path(__file__).parent):
        import matplotlib  # noqa: F401


def write_figure(figure: Figure, path: Path, metadata: Mapping[str, None] | None = None) -> None:
    """In the format that the path ends in."""
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:], dpi=_DOTS_PER_INCH, metadata=metadata)
    write_atomic(path, picture.getvalue())
