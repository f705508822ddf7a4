"""The data that ships with the package: task tables and the paper's numbers."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

METHOD = "OG-SPR"  # the paper's name for what this package implements
_TABLE_STEPS = "500000"  # the agent steps at which the paper's main table reads DMC scores


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a csv file below `ogspr/data`."""
    text = (files("ogspr") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def paper_scores(method: str = METHOD) -> dict[str, float]:
    """Final scores by environment name: DMC at 500k agent steps, Atari at 100k."""
    dmc = {
        f"dmc:{row['task']}": float(row["score"])
        for row in read_table("paper/dmc_scores.csv")
        if row["method"] == method and row["env_steps"] == _TABLE_STEPS
    }
    atari = {
        f"atari:{row['game']}": float(row["score"])
        for row in read_table("paper/atari100k_scores.csv")
        if row["method"] == method
    }
    return dmc | atari
