"""A learning curve as text."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from ogspr.records.files import read_file

_WIDTH = 50


def read_rows(path: Path, size: int | None = None) -> list[dict[str, float]]:
    """The numbers of a csv file, row by row; other columns are left out. `size`: bytes to read of it."""
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
