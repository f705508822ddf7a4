"""Statistics of scores, and how sure they are.

Scores are float64 arrays of shape (..., runs, tasks): a run is one seed, leading axes are a batch. NaN is a
run that is missing; a task needs at least one. Without missing runs all numbers are those of the library
rliable (Agarwal et al. 2021); what missing ones change is said at each function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from ogspr.errors import unknown
from ogspr.reference import paper_scores, read_table
from ogspr.types import Float64Array

# Takes score arrays (..., runs, tasks) and gives an array (...), or (..., values) for a `Band`.
Statistic: TypeAlias = Callable[..., Float64Array]

RESAMPLES = 50_000
_TRIMMED = 0.25  # of the scores, at either end of an interquartile mean
_CHUNK_SCORES = 2**17  # scores resampled at a time: memory stays bounded, and caches are used


@dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Band:
    """Numbers along a curve, each with its confidence interval."""

    value: Float64Array
    low: Float64Array
    high: Float64Array


def mean(scores: Float64Array) -> Float64Array:
    """The mean of the tasks' mean scores: every task counts the same, however many runs it has."""
    return _mean(task_means(scores))


def median(scores: Float64Array) -> Float64Array:
    """The median of the tasks' mean scores, however many runs each has."""
    return np.median(task_means(scores), axis=-1)


def iqm_of_tasks(scores: Float64Array) -> Float64Array:
    """The interquartile mean of the tasks' mean scores, as in the paper; one value a task, NaN or not."""
    return _trimmed_mean(task_means(scores))


def iqm_of_runs(scores: Float64Array) -> Float64Array:
    """The interquartile mean of all runs of all tasks together, as in rliable.

    Missing runs are skipped: every existing run counts the same, so a task with fewer counts less.
    """
    scores = _checked(scores)
    return _trimmed_mean(scores.reshape(*scores.shape[:-2], -1))


def optimality_gap(scores: Float64Array, gamma: float = 1.0) -> Float64Array:
    """How far runs stay below `gamma` on average; what they reach beyond it does not make up for others.

    Every task counts the same, however many runs it has.
    """
    return gamma - mean(np.minimum(scores, gamma))


def probability_of_improvement(x: Float64Array, y: Float64Array) -> Float64Array:
    """How likely a run of `x` is better than one of `y` on a task picked at random; ties count half.

    The mean over tasks of Mann-Whitney's U as a share of all pairs of runs; missing runs make no pairs.
    """
    x, y = _checked(x), _checked(y)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"expected the same tasks twice, got {x.shape[-1]} and {y.shape[-1]}")
    pairs = _runs(x) * _runs(y)
    wins: Float64Array = np.zeros(pairs.shape)
    for run in range(y.shape[-2]):
        rival = y[..., run : run + 1, :]
        wins += 0.5 * (np.count_nonzero(x > rival, axis=-2) + np.count_nonzero(x >= rival, axis=-2))
    return _mean(wins / pairs)


def performance_profile(scores: Float64Array, thresholds: Float64Array | Sequence[float]) -> Float64Array:
    """The share of runs with a score above each threshold: (..., thresholds).

    The mean over tasks of the share within the task: every task counts the same, however many runs it has.
    """
    scores = _checked(scores)
    runs = _runs(scores)
    shares = [_mean(np.count_nonzero(scores > limit, axis=-2) / runs) for limit in thresholds]
    return np.stack(shares, axis=-1)


def bootstrap_interval(
    statistic: Statistic,
    *score_arrays: Float64Array,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> Estimate:
    """A statistic of one or several score arrays with its stratified percentile bootstrap interval.

    Every task's runs are resampled with replacement, as many as there are; tasks stay as they are, and
    missing runs stay missing. The interval is about other seeds on the same tasks.
    """
    band = bootstrap_band(statistic, *score_arrays, resamples=resamples, seed=seed, confidence=confidence)
    return Estimate(float(band.value), float(band.low), float(band.high))


def bootstrap_band(
    statistic: Statistic,
    *score_arrays: Float64Array,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> Band:
    """`bootstrap_interval` for a statistic that gives several values; the interval is each value's own."""
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError(f"expected resamples > 0 and confidence in (0, 1), got {resamples}, {confidence}")
    arrays = [_checked(scores) for scores in score_arrays]
    value = np.asarray(statistic(*arrays))
    found = np.concatenate([statistic(*batch) for batch in _resampled(arrays, resamples, seed)])
    if found.shape != (resamples, *value.shape):
        raise ValueError(f"a statistic must keep leading axes; got {found.shape} for {resamples} resamples")
    outside = (1 - confidence) / 2
    low, high = np.quantile(found, [outside, 1 - outside], axis=0)
    return Band(value, low, high)


def _resampled(
    arrays: Sequence[Float64Array], resamples: int, seed: int
) -> Iterator[tuple[Float64Array, ...]]:
    """Batches of resampled arrays, `resamples` in all."""
    rng = np.random.default_rng(seed)
    packed = [np.sort(scores, axis=0) for scores in arrays]  # missing runs last
    size = max(1, _CHUNK_SCORES // sum(scores.size for scores in arrays))
    for start in range(0, resamples, size):
        yield tuple(_drawn(scores, min(size, resamples - start), rng) for scores in packed)


def _drawn(packed: Float64Array, count: int, rng: np.random.Generator) -> Float64Array:
    """`count` copies of scores (runs, tasks) whose missing runs are last, resampled within every task."""
    runs, tasks = packed.shape
    present = _runs(packed)
    rows = (rng.random((count, runs, tasks)) * present).astype(np.intp)
    drawn: Float64Array = packed.ravel()[rows * tasks + np.arange(tasks)]
    if (present < runs).any():
        drawn[:, np.arange(runs)[:, None] >= present] = np.nan
    return drawn


def task_means(scores: Float64Array) -> Float64Array:
    """(..., tasks)."""
    scores = _checked(scores)
    return np.asarray(np.nansum(scores, axis=-2) / _runs(scores))


def _mean(values: Float64Array) -> Float64Array:
    """Over the last axis, that of the tasks."""
    return np.asarray(np.mean(values, axis=-1))


def _trimmed_mean(values: Float64Array) -> Float64Array:
    """The mean over the last axis without NaN, and without a quarter of the others at either end."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    cut = (_TRIMMED * count).astype(np.intp)  # rounded down
    rank = np.arange(values.shape[-1])
    kept = (rank >= cut) & (rank < count - cut)
    return np.asarray(np.mean(ordered, axis=-1, where=kept))


def _runs(scores: Float64Array) -> Float64Array:
    """How many runs every task has: (..., tasks)."""
    return np.asarray(np.count_nonzero(~np.isnan(scores), axis=-2), np.float64)


def _checked(scores: Float64Array) -> Float64Array:
    """Scores as float64; ValueError where they are no (..., runs, tasks) or a task has no run."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 2 or 0 in scores.shape:
        raise ValueError(f"expected scores of shape (..., runs, tasks), got {scores.shape}")
    empty = np.argwhere(np.isnan(scores).all(axis=-2))
    if len(empty):
        raise ValueError(f"task {empty[0][-1]} has no run; omit it")
    return scores


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
