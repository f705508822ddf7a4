"""A csv file that grows with a run, and that a resumed run continues where its checkpoint left it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ogspr.errors import UserError
from ogspr.records.files import check_own, open_to_change, read_file, writing

Cell = str | int | float


class Table:
    """Rows are appended and never changed. The header comes with the first row.

    Args:
        path: The file.
        size: Its size in bytes when the checkpoint was written; what lies beyond is cut off, since the run
            will write it again. 0: a new file.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        check_table(path, size)
        self._path = path
        self._file = open_to_change(path)
        with writing(path):
            self._file.truncate(size)
            self._file.seek(size)
        self._columns = _columns(path) if size else ()

    def append(self, rows: Sequence[Mapping[str, Cell]]) -> None:
        """Rows with the columns of the first one; whole lines reach the file at once."""
        if not rows:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._columns:
            self._columns = tuple(rows[0])
            writer.writerow(self._columns)
        for row in rows:
            if row.keys() != set(self._columns):
                raise ValueError(f"{self._path}: expected columns {self._columns}, got {tuple(row)}")
            writer.writerow([row[name] for name in self._columns])
        with writing(self._path):
            self._file.write(text.getvalue().encode())
            self._file.flush()

    def safe_size(self) -> int:
        """The size of the file once everything in it has reached the disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        with writing(self._path):
            self._file.close()


def check_table(path: Path, size: int) -> None:
    """Refuses a file that could not be continued after so many bytes; changes nothing."""
    check_own(path)
    found = path.stat().st_size if path.exists() else 0
    if not 0 <= size <= found:
        raise UserError(
            f"{path} has {found} bytes where the checkpoint knows of {size}; "
            "put the file back, or start a new run."
        )
    if path.exists():
        open_to_change(path).close()
    if size:
        _columns(path)


def whole_lines(path: Path) -> int:
    """Bytes of a file up to the end of its last whole line; 0 where there is none."""
    check_table(path, 0)
    return read_file(path).rfind(b"\n") + 1 if path.exists() else 0


def _columns(path: Path) -> tuple[str, ...]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return tuple(next(csv.reader(file)))
    except (StopIteration, ValueError, csv.Error):
        raise UserError(f"{path} is damaged: it begins with no header; put the file back.") from None
