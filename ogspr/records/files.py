"""Writing files for a user: what goes wrong there is told, not thrown."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ogspr.errors import UserError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure of the file system into one line that names the place."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write {path}: {reason}; choose another place or free this one.") from None


def make_folder(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def claim_file(path: Path) -> None:
    """Finds out before the work that its result could not be written; an existing file stays as it is."""
    make_folder(path.parent)
    with writing(path):
        path.touch()


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    make_folder(path.parent)
    with writing(path), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
