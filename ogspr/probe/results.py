"""Losses of linear probes as csv, summaries and a figure, next to the paper's numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ogspr.analysis.probing import NEXT_STATE, STATE, TITLES, paper_losses, run_means
from ogspr.analysis.statistics import Estimate, bootstrap_interval, mean
from ogspr.probe.probing import HeadTraining, Loss
from ogspr.records.drawing import load_matplotlib, write_figure
from ogspr.records.files import write_csv

_COLUMNS = (
    "task",
    "method",
    "seed",
    "collector",
    "collector_seed",
    "loss",
    "value",
    "value_per_dimension",
    "training_value",
    "dimensions",
    "agent_steps",
    "collector_score",
    "policy",
    "episodes",
    "updates",
    "batch_size",
    "learning_rate",
    "clip_norm",
    "probe_seed",
    "run",
)


@dataclass(frozen=True)
class ProbeRow:
    """One predictor: of one run's representation, on episodes that one policy has played."""

    task: str
    method: str  # the paper's name of the preset, and everything that was changed in it
    seed: int
    collector: str  # the method of the run whose policy played
    collector_seed: int | None  # None: its file does not say
    loss: str
    found: Loss
    agent_steps: int  # of training behind the representation
    collector_score: float  # mean of the episodes
    run: Path


@dataclass(frozen=True)
class Summary:
    """One method and one loss: of each run the mean over collectors, of these the mean over seeds."""

    method: str
    loss: str
    runs: int
    squared_norm: Estimate
    per_dimension: Estimate
    paper: Estimate | None


def summarise(rows: Sequence[ProbeRow]) -> list[Summary]:
    """Methods in the order of the rows; for each state, next state and their sum."""
    summaries, paper = [], paper_losses()
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        norms = run_means((row.run, row.loss, row.found.held_out) for row in own)
        shares = run_means((row.run, row.loss, row.found.per_dimension) for row in own)
        summaries += [
            Summary(
                method,
                loss,
                runs=len(norms[loss]),
                squared_norm=bootstrap_interval(mean, norms[loss]),
                per_dimension=bootstrap_interval(mean, shares[loss]),
                paper=paper.get((own[0].task, method, loss)),
            )
            for loss in TITLES
        ]
    return summaries


def write_rows(
    path: Path, rows: Sequence[ProbeRow], training: HeadTraining, *, episodes: int, seed: int, policy: str
) -> None:
    """Each row with all that decides its numbers."""
    settings = (episodes, training.updates, training.batch_size, training.learning_rate, training.clip_norm)
    cells = [
        (
            row.task,
            row.method,
            row.seed,
            row.collector,
            "" if row.collector_seed is None else row.collector_seed,
            row.loss,
            row.found.held_out,
            row.found.per_dimension,
            row.found.training,
            row.found.dimensions,
            row.agent_steps,
            row.collector_score,
            policy,
            *settings,
            seed,
            row.run,
        )
        for row in rows
    ]
    write_csv(path, _COLUMNS, cells)


# --- the figure: bars for methods, marks for the paper -------------------------------------------------


FORMATS = (".png", ".pdf")
_LOSSES = (STATE, NEXT_STATE)
_OURS, _INK = "#4477aa", "#222222"
_BESIDE = 0.38  # where the paper's mark is, from the middle of a bar
_LETTERS = 24  # in a line of the name of a method


def figure_paths(csv: Path) -> list[Path]:
    """Where the figure beside a table of losses is drawn."""
    return [csv.with_suffix(suffix) for suffix in FORMATS]


def draw(summaries: Sequence[Summary], task: str, csv: Path) -> list[Path]:
    """One panel for each loss, a bar for each method; next to the csv file, as PNG and PDF."""
    load_matplotlib()
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(summary.method for summary in summaries))
    figure = Figure(figsize=(1.5 + 1.3 * len(_LOSSES) * max(2, len(methods)), 3.6), layout="constrained")
    figure.suptitle(f"linear probing, {task}")
    for axes, loss in zip(figure.subplots(1, len(_LOSSES)), _LOSSES, strict=True):
        chosen = {summary.method: summary for summary in summaries if summary.loss == loss}
        _panel(axes, [chosen[method] for method in methods])
        axes.set_title(TITLES[loss])
    paths = figure_paths(csv)
    for path in paths:
        write_figure(figure, path)
    return paths


def _panel(axes: Any, summaries: Sequence[Summary]) -> None:
    ours = {float(place): summary.per_dimension for place, summary in enumerate(summaries)}
    paper = {
        place + _BESIDE: summary.paper for place, summary in enumerate(summaries) if summary.paper is not None
    }
    axes.bar(list(ours), [estimate.value for estimate in ours.values()], width=0.6, color=_OURS, label="ours")
    _intervals(axes, ours, fmt="none")
    if paper:
        _intervals(axes, paper, fmt="D", label="paper")
        axes.legend(frameon=False)
    axes.set_xticks(
        list(ours), [textwrap.fill(summary.method, _LETTERS) for summary in summaries], rotation=20
    )
    axes.set_ylabel("held-out loss a dimension")


def _intervals(axes: Any, estimates: Mapping[float, Estimate], **style: str) -> None:
    values = [each.value for each in estimates.values()]
    below = [each.value - each.low for each in estimates.values()]
    above = [each.high - each.value for each in estimates.values()]
    axes.errorbar(list(estimates), values, [below, above], color=_INK, markersize=4, capsize=3, **style)
