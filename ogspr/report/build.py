"""`ogspr report`: tables, figures and a page from a folder of runs."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np
from rich.console import Console

from ogspr.analysis.grid import PAPER_STEPS, Grid, make_grid
from ogspr.analysis.runs import Collection, RunResult, collect, plural
from ogspr.errors import UserError, require_positive
from ogspr.records.drawing import load_matplotlib
from ogspr.records.files import (
    check_default_place,
    make_folder,
    make_inner_folder,
    user_io_errors,
    write_atomic,
    write_csv,
)
from ogspr.report.aggregates import HUMAN, RAW, averaged_tasks
from ogspr.report.compose import make_document
from ogspr.report.document import Document
from ogspr.report.paper_tables import BENCHMARKS, benchmark_tables, improvement_table
from ogspr.report.probing import find_losses, probing_table
from ogspr.report.runtime import runtime_table
from ogspr.report.table import CSV_HEADER, Table, csv_rows, latex, markdown

# In this order: each file uses what those before it have put into `ogspr`.
_SCRIPTS = (
    "dom.js",
    "numbers.js",
    "state.js",
    "methods.js",
    "tip.js",
    "chart.js",
    "controls.js",
    "grid.js",
    "tree.js",
    "runs.js",
    "curves.js",
    "tables.js",
    "overview.js",
    "live.js",
    "main.js",
)
_TITLE = "ogspr"
_FOLDER = Path("report")
# Inside a script element these would end it, or hide the rest of the page.
_INERT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def page(document: Document | None, *, live: str | None = None) -> str:
    """One HTML file.

    Args:
        document: What it shows; None while nothing is known.
        live: Where the script fetches the document again every few seconds, next to the page's own address
            (`data.json`, with what `document_json` returns). None: the page never asks for anything.
    """
    style, script = _asset("style.css"), "\n".join(_asset(name) for name in _SCRIPTS)
    return Template(_asset("page.html")).substitute(
        title=_attribute(document["title"] if document else _TITLE),
        policy=_attribute(_policy(style, script, document, live)),
        live=_attribute(live or ""),
        style=style,
        script=script,
        document=document_json(document).translate(_INERT),
    )


def document_json(document: Document | None) -> str:
    """ASCII and without NaN and infinities, which are no JSON: they become null."""
    try:
        return _dumped(document)
    except ValueError:  # rarely needed and slow for large documents
        return _dumped(_finite(document))


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _policy(style: str, script: str, document: Document | None, live: str | None) -> str:
    """What the browser may do for this page. Videos next to it are the only files it may load."""
    beside = " 'self' file:" if live or _has_videos_next_to_it(document) else ""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_fingerprint(script)}",
            f"style-src {_fingerprint(style)}",
            f"img-src data:{beside}",
            f"media-src data:{beside}",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _has_videos_next_to_it(document: Document | None) -> bool:
    videos = (video for run in (document["runs"] if document else ()) for video in run["videos"])
    return any(not video["source"].startswith("data:") for video in videos)


def _fingerprint(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _attribute(text: str) -> str:
    """Escaped; halves of characters, which names of folders can hold, would not fit into a UTF-8 file."""
    return escape(text.encode(errors="replace").decode())


@cache
def _asset(name: str) -> str:
    return (files("ogspr.report") / "assets" / name).read_text(encoding="utf-8")


_MOST_LINES = 10  # of warnings, before the rest is only counted
_TABLES = (
    *(f"{benchmark.name}{part}" for benchmark in BENCHMARKS for part in ("", "-tasks")),
    *("improvement", "runtime", "probing"),
)


@dataclass(frozen=True)
class Report:
    """What was found, as numbers."""

    collection: Collection
    grid: Grid
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]
    at: int | None  # the agent step at which scores are read; None: as in the paper

    def document(self, title: str, address: Callable[[Path], str]) -> Document:
        """For the page; `address`: where a browser finds a file."""
        return make_document(
            self.collection, self.grid, self.tables, self.warnings, title=title, address=address
        )


def make_report(
    paths: Sequence[Path], at: int | None = None, read: Callable[[Path], RunResult] | None = None
) -> Report:
    """Reads runs and fills tables; writes nothing.

    Args:
        paths: Folders of runs, or folders that hold such.
        at: The agent step at which scores are read; None: as in the paper.
        read: Reads a run; may be a cached reader.
    """
    require_positive(at=at)
    collection = collect(paths, read)
    grid = make_grid(collection.runs)
    tables = benchmark_tables(grid, at)
    losses, warnings = find_losses(paths)
    others = (improvement_table(grid, at), runtime_table(grid), probing_table(losses))
    tables += [table for table in others if table is not None]
    return Report(collection, grid, tuple(tables), (*grid.warnings, *warnings), at)


def write_report(paths: Sequence[Path], out: Path | None, at: int | None, console: Console) -> Report:
    """Writes tables, figures and report.html below `out`, and says what is in it; None: below report/."""
    if out is None:
        out = _FOLDER
        check_default_place(out, f"--out {out}")
    with console.status("reading runs"):
        report = make_report(paths, at)
    if not report.collection.runs:
        reasons = "\n".join(f"  {folder}: {reason}" for folder, reason in report.collection.skipped)
        raise UserError(f"no usable run was found:\n{reasons}")
    make_folder(out)
    for name in ("tables", "figures"):
        make_inner_folder(out / name)
    with console.status("writing tables"):
        _remove(out / "tables", (f"{name}.{ending}" for name in _TABLES for ending in ("md", "tex", "csv")))
        for table in report.tables:
            write_table(table, out / "tables")
    with console.status("drawing figures"):
        drawn = _write_figures(report, out / "figures")
    title = f"ogspr report: {', '.join(path.name or str(path) for path in paths)}"
    document = report.document(title, lambda path: quote(os.path.relpath(path.resolve(), out.resolve())))
    write_atomic(out / "report.html", page(document).encode())
    _tell(report, drawn, out, console)
    return report


def write_table(table: Table, folder: Path) -> None:
    """Three files: Markdown, LaTeX, csv."""
    write_atomic(folder / f"{table.name}.md", markdown(table).encode())
    write_atomic(folder / f"{table.name}.tex", latex(table).encode())
    write_csv(folder / f"{table.name}.csv", CSV_HEADER, csv_rows(table))


def _write_figures(report: Report, folder: Path) -> int:
    load_matplotlib()
    from ogspr.report.figures import KINDS, figures, save  # matplotlib takes a second to import

    _remove(folder, (f"{kind}-*.{ending}" for kind in KINDS for ending in ("png", "pdf")))
    return sum(len(save(figure, folder, name)) for name, figure in figures(report.grid, report.at))


def _remove(folder: Path, patterns: Iterable[str]) -> None:
    """Removes files of an earlier report that this one may not write, so that they are not mixed up."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            with user_io_errors(path):
                path.unlink()


def _tell(report: Report, drawn: int, out: Path, console: Console) -> None:
    grid = report.grid
    lines = [f"warning: {warning}" for warning in report.warnings]
    lines += [f"skipped {folder}: {reason}" for folder, reason in report.collection.skipped]
    for line in lines[:_MOST_LINES]:
        console.print(line)
    if len(lines) > _MOST_LINES:
        console.print(f"... and {len(lines) - _MOST_LINES} more; all are on the page")
    found = (
        (len(report.collection.runs), "run"),
        (len(grid.methods), "method"),
        (len(grid.tasks), "task"),
        (len(report.tables), "table"),
        (drawn // 2, "figure"),
    )
    console.print(", ".join(plural(count, word) for count, word in found))
    for line in _hints(report):
        console.print(line)
    console.print(f"written     {out / 'report.html'}; tables/ and figures/ are next to it")


def _hints(report: Report) -> list[str]:
    """Why tables or figures are empty or missing, and what would fill them."""
    hints = []
    for suite, steps in PAPER_STEPS.items():
        runs = [run for run in report.grid.runs if run.suite == suite]
        wanted = report.at or steps
        if runs and not any(run.score_at(wanted) is not None for run in runs):
            common = reduce(np.intersect1d, [run.evaluations.agent_steps for run in runs])
            advice = f"; --at {max(common)} reads all of them there" if np.any(common > 0) else ""
            hints.append(
                f"no run of {suite} has an evaluation at {wanted} agent steps: aggregates are empty{advice}"
            )
        tasks = sorted({run.task for run in runs})
        unit = RAW if suite == "dmc" else HUMAN
        if len(tasks) > 1 and not averaged_tasks(report.grid, tasks, unit):
            hints.append(f"no mean curves of {suite}: its methods have fewer than two tasks in common")
    return hints
