"""Runs as the document that the page in the browser shows."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ogspr._version import __version__
from ogspr.analysis.grid import Curve, Grid, published_curves, wanted_steps
from ogspr.analysis.runs import Collection, FloatArray, RunResult, read_columns
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.reference import paper_scores
from ogspr.report.aggregates import PER_CENT_HUMAN, RAW, aggregate, paper_mean
from ogspr.report.document import (
    Columns,
    Document,
    FinalScore,
    RunDocument,
    Score,
    Series,
    TaskCurves,
    Video,
)
from ogspr.report.table import Table, for_page

_MOST_ROWS = 60  # of a csv file on the page of a run: as many as a small chart can show
_LARGEST_VIDEO = 1_000_000  # bytes, to be part of the page
_ALL_VIDEOS = 30_000_000  # bytes
_DIGITS = 6
_VIDEO_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
_PAPER_METHODS = ("OG-SPR", "AnonMethod", "MR.Q", "DreamerV3", "TD-MPC2", "DrQ-v2", "SPR")


def make_document(
    collection: Collection,
    grid: Grid,
    tables: Sequence[Table],
    warnings: Sequence[str],
    *,
    title: str,
    address: Callable[[Path], str],
) -> Document:
    """Everything the page shows; `address` says where a browser finds a video too large to be part of it."""
    identities = {run.folder: str(place) for place, run in enumerate(collection.runs)}
    videos = _Videos(address)
    return {
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "warnings": list(warnings),
        "skipped": [{"folder": str(folder), "reason": reason} for folder, reason in collection.skipped],
        "tables": [for_page(table) for table in tables],
        "scores": [
            _score(grid, method, task)
            for task in grid.tasks
            for method in grid.methods
            if task in grid.methods[method]
        ],
        "curves": [*_mean_curves(grid), *(_task_curves(grid, task, identities) for task in grid.tasks)],
        "runs": [
            _run_document(run, identities[run.folder], grid.names[run.folder], videos)
            for run in collection.runs
        ],
    }


def _score(grid: Grid, method: str, task: str) -> Score:
    """As in the tables: at the step at which they are read, or the last that all runs share."""
    entry = grid.entry(method, task)
    runs = grid.methods[method][task]
    return {
        "task": task,
        "method": method,
        "runs": len(runs),
        "finished": sum(run.finished for run in runs),
        "agent_steps": entry.agent_steps if entry else None,
        "score": float(entry.scores.mean()) if entry else None,
        "note": entry.note if entry else "these runs have no step in common",
        "incomplete": entry is None or not entry.complete,
    }


def _mean_curves(grid: Grid) -> Iterator[TaskCurves]:
    """Of each suite, the means over its tasks."""
    for unit in (RAW, PER_CENT_HUMAN):
        tasks = [task for task in grid.tasks if unit.tasks(task)]
        found = aggregate(grid, tasks, unit)
        if found is None:
            continue
        steps = wanted_steps(found.tasks[0], grid.runs)
        means = {method: paper_mean(method, found) for method in _PAPER_METHODS}
        suite = found.tasks[0].partition(":")[0]
        yield {
            "task": f"{suite}, mean of {len(found.tasks)} tasks",
            "note": f"{unit.title}, of the tasks that all methods here have in common",
            "series": [_series(method, line, ()) for method, line in found.lines.items()],
            "paper": [
                {"method": method, "score": score, "agent_steps": steps}
                for method, score in means.items()
                if score is not None
            ],
        }


def _task_curves(grid: Grid, task: str, identities: dict[Path, str]) -> TaskCurves:
    ours = [
        _series(method, grid.curve(method, task), [(identities[run.folder], run.seed) for run in runs[task]])
        for method, runs in grid.methods.items()
        if task in runs
    ]
    published = [_published_series(method, line) for method, line in published_curves().get(task, {}).items()]
    steps = wanted_steps(task, grid.runs)
    paper: list[FinalScore] = [
        {"method": method, "score": paper_scores(method)[task], "agent_steps": steps}
        for method in _PAPER_METHODS
        if task in paper_scores(method)
    ]
    return {"task": task, "note": "", "series": [*ours, *published], "paper": paper}


def _series(method: str, line: Curve, runs: Sequence[tuple[str, int]]) -> Series:
    return {
        "method": method,
        "group": "ours",
        "agent_steps": line.agent_steps.tolist(),
        "frames": line.frames.tolist(),
        "mean": _numbers(line.mean),
        "low": _numbers(line.low),
        "high": _numbers(line.high),
        "runs": [
            {"run": run, "seed": seed, "scores": _numbers(scores)}
            for (run, seed), scores in zip(runs, line.scores, strict=True)
        ],
    }


def _published_series(method: str, line: Curve) -> Series:
    """Without its single runs: a page of all tasks would be twice as large."""
    series = _series(method, replace(line, scores=line.scores[:0]), ())
    series["group"] = "published"
    return series


def _run_document(run: RunResult, identity: str, method: str, videos: _Videos) -> RunDocument:
    folder = RunFolder(run.folder)
    return {
        "id": identity,
        "folder": str(run.folder),
        "task": run.task,
        "method": method,
        "seed": run.seed,
        "agent_steps": run.agent_steps,
        "wanted_steps": run.wanted_steps,
        "finished": run.finished,
        "last": run.last,
        "best": run.best,
        "config": run.options,
        "manifest": run.manifest,
        "losses": _columns(folder.train_table),
        "system": _columns(folder.system_table),
        "evaluations": {
            "agent_steps": run.evaluations.agent_steps.tolist(),
            "frames": run.evaluations.frames.tolist(),
            "scores": [_numbers(scores) for scores in run.evaluations.scores],
        },
        "videos": videos.of(folder.videos),
    }


def _columns(path: Path) -> Columns:
    """Nothing where it cannot be read."""
    try:
        names, numbers = read_columns(path, _MOST_ROWS)
    except UserError:
        return {"names": [], "rows": []}
    return {"names": names, "rows": [_without_nan(row) for row in _rounded(numbers)]}


def _numbers(values: FloatArray) -> list[float | None]:
    return _without_nan(_rounded(values))


def _rounded(values: FloatArray) -> FloatArray:
    """To six digits: more than a screen shows, and a page of half the size."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = _DIGITS - 1 - np.floor(np.log10(np.abs(values)))
    scale = 10.0 ** np.where(np.isfinite(places), places, 0.0)
    return np.round(values * scale) / scale


def _without_nan(values: FloatArray) -> list[float | None]:
    """JSON knows no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


class _Videos:
    """Small videos become part of the page, as long as it stays small itself; others are linked."""

    def __init__(self, address: Callable[[Path], str]) -> None:
        self._address = address
        self._left = _ALL_VIDEOS

    def of(self, folder: Path) -> list[Video]:
        """None if they cannot be read: a page without videos is better than no page.

        Nor through a link: pages are passed on, and a run from someone else could lead to any file.
        """
        if folder.is_symlink():
            return []
        try:
            return [
                self._video(path, kind)
                for path in sorted(folder.iterdir())
                if (kind := _VIDEO_TYPES.get(path.suffix)) and path.is_file() and not path.is_symlink()
            ]
        except OSError:
            return []

    def _video(self, path: Path, kind: str) -> Video:
        size = path.stat().st_size
        if size <= min(_LARGEST_VIDEO, self._left):
            self._left -= size
            data = base64.b64encode(path.read_bytes()).decode()
            return {"name": path.name, "source": f"data:{kind};base64,{data}"}
        return {"name": path.name, "source": self._address(path)}
