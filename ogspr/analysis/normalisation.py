"""Normalised scores: 0 is the random policy, 1 a reference.

| name | reference | random policy |
|---|---|---|
| drqv2 | DrQ-v2 at 500k agent steps, from the paper | measured: `python -m benchmarks random` |
| human | human players, from the paper | from the paper |
| spr | SPR at 100k agent steps, from the paper | from the paper |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ogspr.errors import unknown
from ogspr.reference import paper_scores, read_table
from ogspr.types import Float64Array


@dataclass(frozen=True)
class Normalisation:
    """What 0 and 1 mean, by environment name; the tasks of both are the same."""

    random: Mapping[str, float]
    reference: Mapping[str, float]


_REFERENCES = {"drqv2": "DrQ-v2", "human": "Human", "spr": "SPR"}  # the paper's names of the references
NORMALISATIONS = tuple(_REFERENCES)


def normalised(name: str, task: str, scores: Float64Array) -> Float64Array:
    """(x - random) / (reference - random), for scores of one task in an array of any shape."""
    scale = normalisation(name)
    if task not in scale.reference:
        raise unknown(f"task of the normalisation {name}", task, scale.reference)
    return (scores - scale.random[task]) / (scale.reference[task] - scale.random[task])


@cache
def normalisation(name: str) -> Normalisation:
    """The normalisation called drqv2, human or spr."""
    if name not in _REFERENCES:
        raise unknown("normalisation", name, _REFERENCES)
    reference = paper_scores(_REFERENCES[name])
    random = random_scores() if name == "drqv2" else paper_scores("Random")
    return Normalisation({task: random[task] for task in reference}, reference)


@cache
def random_scores() -> dict[str, float]:
    """Mean scores of the random policy by environment name, as measured with this package."""
    return {row["task"]: float(row["mean"]) for row in read_table("random_scores.csv")}
