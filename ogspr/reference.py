"""The data that ships with the package: task tables and the paper's numbers."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

METHOD = "OG-SPR"  # the paper's name for what this package implements
_TABLE_STEPS = "500000"  # the agent steps at which the paper's main table reads DMC scores


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a csv file below `ogspr/data`."""
    text = (files("ogspr") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@dataclass(frozen=True)
class Published:
    """A number of the paper with the ends of its 95 % interval, where it gives them."""

    value: float
    low: float | None = None
    high: float | None = None


@cache
def paper_scores(method: str = METHOD) -> dict[str, float]:
    """Final scores by environment name: DMC at 500k agent steps, Atari at 100k."""
    return {task: found.value for task, found in paper_estimates(method).items()}


@cache
def paper_estimates(method: str) -> dict[str, Published]:
    """The same with intervals; also of the ablations and, for Atari, of Human and Random."""
    dmc = {
        f"dmc:{row['task']}": _published(row, "score")
        for table in ("paper/dmc_scores.csv", "paper/dmc_ablations.csv")
        for row in read_table(table)
        if row["method"] == method and row["env_steps"] == _TABLE_STEPS
    }
    atari = {
        f"atari:{row['game']}": _published(row, "score")
        for row in read_table("paper/atari100k_scores.csv")
        if row["method"] == method
    }
    return dmc | atari


@cache
def paper_aggregates() -> dict[tuple[str, str, str], dict[str, Published]]:
    """(benchmark, metric, statistic) -> method -> the aggregate over all its tasks."""
    aggregates: dict[tuple[str, str, str], dict[str, Published]] = {}
    for row in read_table("paper/aggregates.csv"):
        key = (row["benchmark"], row["metric"], row["statistic"])
        aggregates.setdefault(key, {})[row["method"]] = _published(row, "value")
    return aggregates


def _published(row: dict[str, str], column: str) -> Published:
    ends = (float(row[end]) if row[end] else None for end in ("ci_low", "ci_high"))
    return Published(float(row[column]), *ends)
