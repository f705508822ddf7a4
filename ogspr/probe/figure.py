"""The losses of all methods as bars, with the paper's numbers as marks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ogspr.analysis.probing import NEXT_STATE, STATE, TITLES
from ogspr.analysis.statistics import Estimate
from ogspr.probe.results import Summary
from ogspr.records.drawing import load_matplotlib, write_figure

FORMATS = (".png", ".pdf")
_LOSSES = (STATE, NEXT_STATE)
_OURS, _INK = "#4477aa", "#222222"
_BESIDE = 0.38  # where the paper's mark is, from the middle of a bar
_LETTERS = 24  # in a line of the name of a method


def draw(summaries: Sequence[Summary], task: str, csv: Path) -> list[Path]:
    """One panel for each loss, a bar for each method; beside the csv file, as PNG and PDF."""
    load_matplotlib()
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(summary.method for summary in summaries))
    figure = Figure(figsize=(1.5 + 1.3 * len(_LOSSES) * max(2, len(methods)), 3.6), layout="constrained")
    figure.suptitle(f"linear probing, {task}")
    for axes, loss in zip(figure.subplots(1, len(_LOSSES)), _LOSSES, strict=True):
        chosen = {summary.method: summary for summary in summaries if summary.loss == loss}
        _panel(axes, [chosen[method] for method in methods])
        axes.set_title(TITLES[loss])
    paths = [csv.with_suffix(suffix) for suffix in FORMATS]
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
