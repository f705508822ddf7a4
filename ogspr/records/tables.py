"""The csv files of a run, which can be cut back; reading them, and a learning curve as text."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ogspr.errors import UserError
from ogspr.records.files import check_own, open_to_change, read_file, user_io_errors, write_csv
from ogspr.types import Episode

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
        with user_io_errors(path):
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
        with user_io_errors(self._path):
            self._file.write(text.getvalue().encode())
            self._file.flush()

    def safe_size(self) -> int:
        """The size of the file once everything in it has reached the disk."""
        with user_io_errors(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        with user_io_errors(self._path):
            self._file.close()


def check_table(path: Path, size: int) -> None:
    """Refuses a file that could not be continued after so many bytes; changes nothing."""
    check_own(path)
    found = path.stat().st_size if path.exists() else 0
    if not 0 <= size <= found:
        raise UserError(
            f"{path} has {found} bytes, fewer than the {size} of the checkpoint; "
            "restore the file, or start a new run."
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
        raise UserError(f"{path} is damaged: it has no header; restore the file.") from None


_COLUMNS = ("score", "agent_steps", "frames", "ended", "fault")


def write_episodes(path: Path, episodes: Sequence[Episode]) -> None:
    """One row for each, numbered from 1."""
    rows = [
        (number, *(getattr(episode, name) for name in _COLUMNS))
        for number, episode in enumerate(episodes, start=1)
    ]
    write_csv(path, ("episode", *_COLUMNS), rows)


_WIDTH = 50


def read_rows(path: Path, size: int | None = None) -> list[dict[str, float]]:
    """The numbers of a csv file, row by row; other columns are skipped. `size`: bytes to read of it."""
    text = read_file(path)[:size].decode()
    return [_numbers(row) for row in csv.DictReader(io.StringIO(text, newline=""))]


def mean_scores(path: Path, size: int | None = None) -> dict[int, float]:
    """Mean score by agent steps, from a csv file with one row an episode."""
    scores: dict[int, list[float]] = {}
    for row in read_rows(path, size):
        scores.setdefault(int(row["agent_steps"]), []).append(row["score"])
    return {agent_steps: fmean(group) for agent_steps, group in sorted(scores.items())}


def curve(scores: dict[int, float], reference: tuple[str, float] | None = None) -> list[str]:
    """A bar for each point; where a reference (name, score) is given, it is marked in every bar."""
    values = [*scores.values(), *([reference[1]] if reference else []), 0.0]
    low, high = min(values), max(values)
    mark = _place(reference[1], low, high) if reference else None
    lines = [f"{'agent step':>10}  {'score':>8}"]
    lines += [
        f"{agent_steps:>10}  {score:>8.1f}  {_bar(_place(score, low, high), mark)}"
        for agent_steps, score in scores.items()
    ]
    if reference:
        lines.append(f"{'':>10}  {reference[1]:>8.1f}  {' ' * (mark or 0)}| {reference[0]}")
    return lines


def _numbers(row: dict[str, str]) -> dict[str, float]:
    numbers = {}
    for name, text in row.items():
        with contextlib.suppress(ValueError):
            numbers[name] = float(text)
    return numbers


def _place(score: float, low: float, high: float) -> int:
    return round(_WIDTH * (score - low) / (high - low)) if high > low else 0


def _bar(length: int, mark: int | None) -> str:
    cells: Sequence[str] = [("#" if place < length else " ") for place in range(_WIDTH)]
    return "".join("|" if place == mark else cell for place, cell in enumerate(cells)).rstrip()
