"""Figures for a paper: curves, aggregates, improvements, profiles; PNG and PDF."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ogspr.analysis.curves import Curve
from ogspr.analysis.grid import Grid, score_matrix
from ogspr.analysis.normalisation import normalised
from ogspr.analysis.published import published_curves
from ogspr.analysis.runs import FloatArray
from ogspr.analysis.statistics import bootstrap_interval, mean, performance_profile
from ogspr.records.files import make_folder, writing
from ogspr.reference import METHOD, paper_scores

# Okabe and Ito's colours: told apart also by those who see fewer.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_PUBLISHED_COLOUR = "#7f7f7f"
_PUBLISHED_DASHES = {"DrQ-v2": ":", "TD-MPC2": "--", "DreamerV3": "-."}
_COLUMNS = 4
_PANEL = (3.0, 2.3)  # inches
_RESAMPLES = 1_000
_DOTS_PER_INCH = 150
# The paper's score range of every task of DeepMind Control.
_DMC_HIGHEST = 1000.0


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG and PDF; the same numbers give the same files."""
    make_folder(folder)
    paths = []
    for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        path = folder / f"{name}.{kind}"
        with writing(path):
            figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=metadata)
        paths.append(path)
    return paths


def figures(grid: Grid) -> Iterator[tuple[str, Figure]]:
    """Name and figure, of all for which there are runs."""
    for suite in sorted({task.partition(":")[0] for task in grid.tasks}):
        tasks = [task for task in grid.tasks if task.startswith(f"{suite}:")]
        yield f"curves-{_file_name(suite)}", task_curves(grid, tasks)
        makers: dict[str, Callable[[Grid, Sequence[str]], Figure | None]] = {
            "aggregate": aggregate_curves,
            "improvement": improvement_bars,
            "profile": profiles,
        }
        for name, make in makers.items():
            if (figure := make(grid, tasks)) is not None:
                yield f"{name}-{_file_name(suite)}", figure


def task_curves(grid: Grid, tasks: Sequence[str]) -> Figure:
    """A panel a task: mean and interval of ours, published curves, the paper's final score."""
    columns = min(_COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = _figure(_PANEL[0] * columns, _PANEL[1] * rows + 0.5)
    for place, task in enumerate(tasks, start=1):
        axes = figure.add_subplot(rows, columns, place)
        _draw_task(axes, grid, task)
        axes.set_title(task.partition(":")[2], fontsize=9)
        if place % columns == 1 or columns == 1:
            axes.set_ylabel("score", fontsize=8)
    _shared_legend(figure)
    return figure


def aggregate_curves(grid: Grid, tasks: Sequence[str]) -> Figure | None:
    """Mean score over the tasks that all methods have in common, step by step."""
    methods = _methods(grid, tasks)
    shared = [task for task in tasks if all(task in grid.methods[method] for method in methods)]
    if len(shared) < 2:
        return None
    figure = _figure(5.0, 3.5)
    axes = figure.add_subplot()
    for method, colour in zip(methods, _cycle(), strict=False):
        steps, centre, low, high = _aggregate(grid, method, shared)
        if len(steps):
            axes.plot(steps, centre, color=colour, label=method)
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylabel(f"mean score, {len(shared)} tasks")
    _finish(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def improvement_bars(grid: Grid, tasks: Sequence[str]) -> Figure | None:
    """How far each task is above or below the paper's OG-SPR, at the steps of its table."""
    paper = paper_scores(METHOD)
    found = {
        method: {
            task: float(square.scores.mean()) - paper[task]
            for task in tasks
            if task in paper and (square := grid.square(method, task)) is not None and square.at_the_end
        }
        for method in _methods(grid, tasks)
    }
    found = {method: gains for method, gains in found.items() if gains}
    if not found:
        return None
    figure = _figure(6.0, 1.0 + 0.22 * sum(len(gains) for gains in found.values()))
    axes = figure.add_subplot()
    bars = [
        (f"{task.partition(':')[2]}, {method}" if len(found) > 1 else task.partition(":")[2], gain, colour)
        for (method, gains), colour in zip(found.items(), _cycle(), strict=False)
        for task, gain in sorted(gains.items(), key=lambda item: item[1])
    ]
    names, gains, colours = zip(*bars, strict=True)
    axes.barh(range(len(bars)), gains, color=colours)
    axes.set_yticks(range(len(bars)), names, fontsize=7)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel(f"score above that of {METHOD} in the paper")
    return figure


def profiles(grid: Grid, tasks: Sequence[str]) -> Figure | None:
    """Share of runs above a normalised score, for every score."""
    thresholds = np.linspace(0.0, 1.0 if tasks[0].startswith("dmc:") else 2.0, 101)
    lines = {}
    for method in _methods(grid, tasks):
        columns = _final_scores(grid, method, tasks)
        if columns:
            lines[method] = performance_profile(score_matrix(columns), thresholds)
    if not lines:
        return None
    figure = _figure(5.0, 3.5)
    axes = figure.add_subplot()
    for (method, shares), colour in zip(lines.items(), _cycle(), strict=False):
        axes.plot(thresholds, shares, color=colour, label=method)
    axes.set_xlabel("normalised score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(0.0, 1.02)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_task(axes: Axes, grid: Grid, task: str) -> None:
    ours = [(method, runs[task]) for method, runs in grid.methods.items() if task in runs]
    colours = dict(zip(grid.methods, _cycle(), strict=False))
    last = max(run.agent_steps for _, runs in ours for run in runs)
    for method, line in published_curves().get(task, {}).items():
        shown = line.agent_steps <= last
        axes.plot(
            line.agent_steps[shown],
            line.mean[shown],
            linestyle=_PUBLISHED_DASHES.get(method, "--"),
            color=_PUBLISHED_COLOUR,
            linewidth=1.0,
            label=f"{method} (published)",
        )
    for method, _ in ours:
        _draw_curve(axes, grid.curve(method, task), colours[method], method)
    if task in paper_scores(METHOD):
        axes.axhline(
            paper_scores(METHOD)[task],
            color=_PUBLISHED_COLOUR,
            linewidth=0.8,
            label=f"{METHOD} in the paper, at the end",
        )
    _finish(axes)


def _draw_curve(axes: Axes, line: Curve, colour: str, label: str) -> None:
    axes.plot(line.agent_steps, line.mean, color=colour, label=label, zorder=3)
    axes.fill_between(line.agent_steps, line.low, line.high, color=colour, alpha=0.2, linewidth=0)


def _aggregate(
    grid: Grid, method: str, tasks: Sequence[str]
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Steps at which every run of every task was evaluated; value and interval of the mean there."""
    curves = [grid.curve(method, task) for task in tasks]
    complete = [set(line.agent_steps[~np.isnan(line.scores).any(axis=0)].tolist()) for line in curves]
    steps = sorted(set.intersection(*complete))
    estimates = []
    for step in steps:
        columns = [line.scores[:, np.searchsorted(line.agent_steps, step)] for line in curves]
        estimates.append(bootstrap_interval(mean, score_matrix(columns), resamples=_RESAMPLES, seed=0))
    return (
        steps,
        [found.value for found in estimates],
        [found.low for found in estimates],
        [found.high for found in estimates],
    )


def _final_scores(grid: Grid, method: str, tasks: Sequence[str]) -> list[FloatArray]:
    """Normalised scores of the runs of each task that has come to the end."""
    columns = []
    for task in tasks:
        square = grid.square(method, task)
        if square is not None and square.at_the_end:
            in_units = task.startswith("atari:") and task in paper_scores("Human")
            columns.append(
                normalised("human", task, square.scores) if in_units else square.scores / _DMC_HIGHEST
            )
    return columns


def _methods(grid: Grid, tasks: Sequence[str]) -> list[str]:
    return [method for method, runs in grid.methods.items() if any(task in runs for task in tasks)]


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
    figure.legend(
        handles=list(labels.values()),
        labels=list(labels),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )


def _cycle() -> Iterator[str]:
    while True:
        yield from _COLOURS


def _file_name(suite: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in suite)
