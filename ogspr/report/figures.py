"""Figures for a paper: curves, aggregates, improvements, profiles; PNG and PDF."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ogspr.analysis.grid import Curve, Grid, published_curves, score_matrix
from ogspr.analysis.runs import plural, thousands
from ogspr.analysis.statistics import Estimate, bootstrap_interval, mean, performance_profile
from ogspr.records.drawing import write_figure
from ogspr.records.files import make_inner_folder
from ogspr.reference import METHOD, paper_scores
from ogspr.report.aggregates import DRQV2, HUMAN, RAW, SHARE, aggregate
from ogspr.report.paper_tables import finished_entry

KINDS = ("curves", "aggregate", "improvement", "profile")
"""How the names of figures begin; the suite follows."""

# Okabe and Ito's colours: told apart also by those who see fewer.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.")  # of ours; one for every round of colours
_PUBLISHED_COLOUR = "#7f7f7f"
_PUBLISHED_DASHES = {"DrQ-v2": ":", "TD-MPC2": "--", "DreamerV3": "-."}
_PUBLISHED, _IN_THE_PAPER = " (published)", " in the paper, at the end"  # how labels end
_RIVALS = ("MR.Q", "AnonMethod")  # with the stronger of which the paper compares
_THIN = 0.8
_COLUMNS = 4
_PANEL = (3.0, 2.3)  # inches
_LEGEND_COLUMN = 2.6  # inches
_LEGEND_HANDLE, _LEGEND_LETTER = 0.6, 0.062  # inches, at its size of letters
_MOST_PER_CENT = 300.0  # on a linear axis
_RESAMPLES = 1_000


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG and PDF; the same numbers give the same files."""
    make_inner_folder(folder)
    paths = []
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        paths.append(folder / f"{name}.{kind}")
        write_figure(figure, paths[-1], metadata)
    return paths


def figures(grid: Grid, at: int | None = None) -> Iterator[tuple[str, Figure]]:
    """Name and figure, of all for which there are runs; `at`: as in the tables."""
    for suite in sorted({task.partition(":")[0] for task in grid.tasks}):
        tasks = [task for task in grid.tasks if task.startswith(f"{suite}:")]
        made = (
            task_curves(grid, tasks),
            aggregate_curves(grid, tasks),
            improvement_bars(grid, tasks, at),
            profiles(grid, tasks, at),
        )
        for kind, figure in zip(KINDS, made, strict=True):
            if figure is not None:
                yield f"{kind}-{_file_name(suite)}", figure


def task_curves(grid: Grid, tasks: Sequence[str]) -> Figure:
    """A panel a task: mean and interval of ours, published curves, the paper's final score."""
    columns = min(_COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = _figure(max(_PANEL[0] * columns, 4.0), _PANEL[1] * rows + 0.6)
    for place, task in enumerate(tasks, start=1):
        axes = figure.add_subplot(rows, columns, place)
        _draw_task(axes, grid, task, tasks)
        axes.set_title(_text(task.partition(":")[2]), fontsize=9)
        if place % columns == 1 or columns == 1:
            axes.set_ylabel("score", fontsize=8)
    _shared_legend(figure)
    return figure


def aggregate_curves(grid: Grid, tasks: Sequence[str]) -> Figure | None:
    """Means over the tasks that all methods have in common, step by step, in each unit of the suite."""
    panels = [found for unit in (RAW, DRQV2, HUMAN) if (found := aggregate(grid, tasks, unit)) is not None]
    if not panels:
        return None
    figure = _figure(4.5 * len(panels), 3.6)
    for place, found in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for method, line in found.lines.items():
            _draw_curve(axes, line, _look(grid, method), _label(grid, method, tasks))
        axes.set_ylabel(f"{found.unit.title}, mean of {len(found.tasks)} tasks", fontsize=8)
        _finish(axes)
    _shared_legend(figure)
    return figure


def improvement_bars(grid: Grid, tasks: Sequence[str], at: int | None = None) -> Figure | None:
    """Per cent above or below the stronger of MR.Q and AnonMethod in the paper, task by task."""
    gains = [
        (method, task, found)
        for method in grid.methods
        for task in tasks
        if (found := improvement(grid, method, task, at)) is not None
    ]
    if not gains:
        return None
    several = len({method for method, _, _ in gains}) > 1
    gains.sort(key=lambda bar: (list(grid.methods).index(bar[0]), bar[2].value))
    figure = _figure(6.0, 1.0 + 0.22 * len(gains))
    axes = figure.add_subplot()
    for place, (method, _, found) in enumerate(gains):
        axes.barh(place, found.value, color=_look(grid, method)["color"])
        axes.plot([found.low, found.high], [place, place], color="black", linewidth=_THIN)
    names = [
        f"{task.partition(':')[2]}, {method}" if several else task.partition(":")[2]
        for method, task, _ in gains
    ]
    axes.set_yticks(range(len(gains)), [_text(name) for name in names], fontsize=7)
    axes.axvline(0.0, color="black", linewidth=_THIN)
    axes.set_ylim(-0.7, len(gains) - 0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if max(abs(found.value) for _, _, found in gains) > _MOST_PER_CENT:
        axes.set_xscale("symlog", linthresh=_MOST_PER_CENT)  # a rival scores next to nothing
    ours = f"at {thousands(at)} agent steps: " if at else ""
    # Of the figure, not of the axes: next to long names those are too narrow for it.
    figure.supxlabel(f"{ours}% above the stronger of {' and '.join(_RIVALS)} in the paper", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    return figure


def improvement(grid: Grid, method: str, task: str, at: int | None) -> Estimate | None:
    """The mean over seeds, in per cent above the stronger rival; None before the end of training."""
    rivals = [paper_scores(name)[task] for name in _RIVALS if task in paper_scores(name)]
    entry = finished_entry(grid, method, task, at)
    if entry is None or not rivals or max(rivals) == 0.0:
        return None
    found = bootstrap_interval(mean, entry.scores[:, None], resamples=_RESAMPLES)
    low, value, high = (
        100.0 * (score - max(rivals)) / abs(max(rivals)) for score in (found.low, found.value, found.high)
    )
    return Estimate(value, low, high)


def profiles(grid: Grid, tasks: Sequence[str], at: int | None = None) -> Figure | None:
    """Share of runs above a score, for every score, on the tasks that all methods have finished."""
    unit = HUMAN if tasks[0].startswith("atari:") else SHARE
    finished = {
        method: {
            task: s for task in tasks if unit.tasks(task) and (s := finished_entry(grid, method, task, at))
        }
        for method in grid.methods
    }
    finished = {method: entries for method, entries in finished.items() if entries}
    shared = [task for task in tasks if finished and all(task in entries for entries in finished.values())]
    if not shared:
        return None
    thresholds = np.linspace(0.0, 2.0 if unit is HUMAN else 1.0, 101)
    figure = _figure(5.0, 3.6)
    axes = figure.add_subplot()
    for method, entries in finished.items():
        scores = score_matrix([unit.convert(task, entries[task].scores) for task in shared])
        shares = performance_profile(scores, thresholds)
        axes.plot(thresholds, shares, label=_label(grid, method, shared), **_look(grid, method))
    axes.set_xlabel(f"{unit.title}, {plural(len(shared), 'task')}", fontsize=8)
    axes.set_ylabel("share of runs above it", fontsize=8)
    axes.set_ylim(0.0, 1.02)
    axes.tick_params(labelsize=7)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_task(axes: Axes, grid: Grid, task: str, tasks: Sequence[str]) -> None:
    methods = [method for method, runs in grid.methods.items() if task in runs]
    last = max(run.agent_steps for method in methods for run in grid.methods[method][task])
    for method, line in published_curves().get(task, {}).items():
        shown = line.agent_steps <= last
        if not shown.any():
            continue
        axes.plot(
            line.agent_steps[shown],
            line.mean[shown],
            linestyle=_PUBLISHED_DASHES.get(method, "--"),
            color=_PUBLISHED_COLOUR,
            linewidth=1.0,
            marker=".",  # they are thinned: a straight line between two of them is not a measurement
            label=f"{method}{_PUBLISHED}",
        )
    for method in methods:
        line, look = grid.curve(method, task), _look(grid, method)
        _draw_curve(axes, line, look, _label(grid, method, tasks))
        _draw_runs_ahead(axes, line, look)
    if task in paper_scores(METHOD):
        axes.axhline(
            paper_scores(METHOD)[task],
            color=_PUBLISHED_COLOUR,
            linewidth=_THIN,
            label=f"{METHOD}{_IN_THE_PAPER}",
        )
    _finish(axes)


def _draw_curve(axes: Axes, line: Curve, look: dict[str, Any], label: str) -> None:
    there = ~np.isnan(line.mean)
    steps = line.agent_steps[there]
    axes.plot(steps, line.mean[there], label=label, zorder=3, **look, **_marker(steps))
    axes.fill_between(steps, line.low[there], line.high[there], color=look["color"], alpha=0.2, linewidth=0)


def _draw_runs_ahead(axes: Axes, line: Curve, look: dict[str, Any]) -> None:
    """Where some runs have ended and others went on: each of these by itself, from the end of the mean."""
    since = line.agent_steps[~np.isnan(line.mean)].max(initial=0)
    for scores in line.scores:
        there = (line.agent_steps >= since) & ~np.isnan(scores)
        if there.sum() > 1:
            axes.plot(line.agent_steps[there], scores[there], linewidth=_THIN, zorder=3, **look)


def _label(grid: Grid, method: str, tasks: Sequence[str]) -> str:
    """With how many seeds there are, of one task or another."""
    counts = [len(runs) for task, runs in grid.methods[method].items() if task in tasks]
    low, high = min(counts), max(counts)
    seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    return _text(f"{method} ({'1 seed' if low == high == 1 else seeds})")


def _look(grid: Grid, method: str) -> dict[str, Any]:
    """The same in every figure."""
    place = list(grid.methods).index(method)
    dash = _DASHES[place // len(_COLOURS) % len(_DASHES)]
    return {"color": _COLOURS[place % len(_COLOURS)], "linestyle": dash}


def _marker(steps: Sized) -> dict[str, Any]:
    """A line needs two points to be seen."""
    return {"marker": "o"} if len(steps) == 1 else {}


def _text(text: str) -> str:
    """As it is: a dollar would begin a formula, and legends leave out what begins with _."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: nothing global, and nothing that would look for a screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(axes: Axes) -> None:
    axes.set_xlabel("agent steps", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.tick_params(labelsize=7)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.spines[["top", "right"]].set_visible(False)


def _thousands(steps: float, _place: Any) -> str:
    if steps >= 1e6:
        return f"{steps / 1e6:g}M"
    return f"{steps / 1e3:g}k" if steps else "0"


def _shared_legend(figure: Figure) -> None:
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, line)
    ordered = sorted(labels, key=lambda label: (label.endswith(_IN_THE_PAPER), label.endswith(_PUBLISHED)))
    columns = max(1, min(4, int(figure.get_figwidth() / _LEGEND_COLUMN)))
    letters = int((figure.get_figwidth() / columns - _LEGEND_HANDLE) / _LEGEND_LETTER)
    figure.legend(
        handles=[labels[label] for label in ordered],
        labels=[textwrap.fill(label, letters) for label in ordered],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def _file_name(suite: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in suite)
