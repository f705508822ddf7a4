"""Statistics against hand numbers and against rliable 1.2.0."""

from functools import partial

import numpy as np
import pytest

from ogspr.analysis.statistics import (
    bootstrap_band,
    bootstrap_interval,
    iqm_of_runs,
    iqm_of_tasks,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

NAN = np.nan
# Two runs of four tasks, their means 1, 2, 4 and 8.
COMPLETE = np.array([[0.0, 1.0, 4.0, 6.0], [2.0, 3.0, 4.0, 10.0]])
# The same with one run less of the last task, whose mean is now 6.
INCOMPLETE = np.array([[0.0, 1.0, 4.0, 6.0], [2.0, 3.0, 4.0, NAN]])
THRESHOLDS = (0.2, 0.5, 0.9, 1.5)
profile = partial(performance_profile, thresholds=THRESHOLDS)
ONE_ARRAY = [mean, median, iqm_of_tasks, iqm_of_runs, optimality_gap, profile]


def matrices():
    """The scores that rliable was given."""
    rng = np.random.default_rng(2024)
    return {
        "wide": rng.gamma(2.0, 0.4, (10, 28)),
        "few": rng.normal(0.6, 0.3, (5, 3)),
        "ties": rng.integers(0, 5, (4, 6)) / 4,
    }


def rivals():
    """What they were compared with for the probability of improvement."""
    rng = np.random.default_rng(2025)
    return {
        "wide": rng.gamma(2.0, 0.35, (7, 28)),
        "few": rng.normal(0.5, 0.3, (5, 3)),
        "ties": rng.integers(0, 5, (5, 6)) / 4,
    }


# rliable 1.2.0 with numpy 1.26.4, scipy 1.17.1, arch 6.3.0, on the matrices above:
#   np.random.seed(0)
#   library.get_interval_estimates({"a": scores}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=50_000)
# likewise for the other metrics; for the probability of improvement with a list [scores, rival], and with
# scipy's Mann-Whitney statistic of all tasks at once, which is the same number sooner; and
#   library.create_performance_profile({"a": scores}, np.array([0.2, 0.5, 0.9, 1.5]), reps=50_000)
# Each row: the value and both ends of its 95 % interval.
RLIABLE = {
    ("wide", mean): (0.804067, 0.7404, 0.8699),
    ("wide", median): (0.782409, 0.6967, 0.8572),
    ("wide", iqm_of_runs): (0.700098, 0.6431, 0.7596),
    ("wide", optimality_gap): (0.341167, 0.3069, 0.3760),
    ("few", mean): (0.567834, 0.4431, 0.6783),
    ("few", median): (0.517774, 0.4308, 0.6462),
    ("few", iqm_of_runs): (0.564532, 0.4419, 0.6771),
    ("few", optimality_gap): (0.435368, 0.3276, 0.5581),
    ("ties", mean): (0.5, 0.3958, 0.6146),
    ("ties", median): (0.46875, 0.3438, 0.6875),
    ("ties", iqm_of_runs): (0.520833, 0.3542, 0.6875),
    ("ties", optimality_gap): (0.5, 0.3854, 0.6042),
}
RLIABLE_IMPROVEMENT = {
    "wide": (0.541837, 0.4878, 0.5959),
    "few": (0.586667, 0.36, 0.8),
    "ties": (0.441667, 0.2917, 0.5958),
}
RLIABLE_PROFILES = {
    "wide": (
        (0.9, 0.653571, 0.339286, 0.107143),
        (0.8643, 0.6, 0.2857, 0.075),
        (0.9321, 0.7071, 0.3929, 0.1429),
    ),
    "few": ((0.933333, 0.6, 0.133333, 0.0), (0.8, 0.4, 0.0, 0.0), (1.0, 0.8, 0.2667, 0.0)),
    "ties": ((0.75, 0.416667, 0.208333, 0.0), (0.625, 0.25, 0.0833, 0.0), (0.875, 0.5833, 0.375, 0.0)),
}


@pytest.mark.parametrize(("name", "statistic"), RLIABLE, ids=lambda value: getattr(value, "__name__", value))
def test_values_and_intervals_are_rliables(name, statistic):
    value, low, high = RLIABLE[name, statistic]
    found = bootstrap_interval(statistic, matrices()[name])
    assert found.value == pytest.approx(value, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize("name", RLIABLE_IMPROVEMENT)
def test_the_probability_of_improvement_is_rliables(name):
    value, low, high = RLIABLE_IMPROVEMENT[name]
    found = bootstrap_interval(probability_of_improvement, matrices()[name], rivals()[name])
    assert found.value == pytest.approx(value, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize("name", RLIABLE_PROFILES)
def test_performance_profiles_are_rliables(name):
    value, low, high = RLIABLE_PROFILES[name]
    found = bootstrap_band(profile, matrices()[name])
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.low == pytest.approx(low, abs=0.01)
    assert found.high == pytest.approx(high, abs=0.01)


def test_hand_numbers_of_a_complete_grid():
    assert mean(COMPLETE) == 3.75
    assert median(COMPLETE) == 3.0
    assert iqm_of_tasks(COMPLETE) == 3.0  # of 1, 2, 4, 8 without the first and the last
    assert iqm_of_runs(COMPLETE) == 3.25  # of 2, 3, 4, 4: the middle of 0, 1, 2, 3, 4, 4, 6, 10
    assert optimality_gap(COMPLETE) == 1 - 7 / 8  # only the run with 0 stays below 1
    assert optimality_gap(COMPLETE, gamma=4.0) == 4 - (0 + 1 + 4 + 4 + 2 + 3 + 4 + 4) / 8
    assert performance_profile(COMPLETE, [1.0, 3.5]).tolist() == [6 / 8, 4 / 8]  # above, not at


def test_missing_runs_are_left_out():
    assert mean(INCOMPLETE) == (1 + 2 + 4 + 6) / 4
    assert median(INCOMPLETE) == 3.0
    assert iqm_of_tasks(INCOMPLETE) == 3.0
    assert iqm_of_runs(INCOMPLETE) == (1 + 2 + 3 + 4 + 4) / 5  # seven runs: one is cut at either end


def test_a_task_counts_the_same_however_many_runs_it_has():
    """The last task has one run and still a quarter of the weight."""
    assert optimality_gap(INCOMPLETE, gamma=5.0) == 5 - (1 + 2 + 4 + 5) / 4
    assert performance_profile(INCOMPLETE, [1.5]).tolist() == [(1 / 2 + 1 / 2 + 1 + 1) / 4]


def test_the_probability_of_improvement_counts_pairs_that_are_there():
    x = np.array([[1.0, 5.0], [3.0, NAN]])
    y = np.array([[2.0, 5.0], [0.0, 4.0], [3.0, NAN]])
    first = (0 + 1 + 0 + 1 + 1 + 0.5) / 6  # 1 and 3 against 2, 0, 3
    second = (0.5 + 1) / 2  # 5 against 5, 4
    assert probability_of_improvement(x, y) == pytest.approx((first + second) / 2)
    assert probability_of_improvement(y, x) == pytest.approx(1 - (first + second) / 2)


@pytest.mark.parametrize("values", range(1, 10))
def test_as_many_values_are_cut_as_whole_ones_fit_into_a_quarter(values):
    """1, 10, 100, ...: the digits of the sum show which were kept."""
    scores = np.array([[10.0**place for place in range(values)]])
    cut = values // 4
    kept = [10.0**place for place in range(cut, values - cut)]
    assert iqm_of_tasks(scores) == pytest.approx(sum(kept) / len(kept))
    assert iqm_of_runs(scores.T) == pytest.approx(sum(kept) / len(kept))


@pytest.mark.parametrize(
    "statistic", [*ONE_ARRAY, lambda scores: probability_of_improvement(scores, scores + 0.1)]
)
def test_a_batch_is_many_grids_at_once(statistic):
    rng = np.random.default_rng(0)
    batch = rng.normal(0.5, 0.5, (6, 5, 4))
    batch[2, 1:, 0] = NAN
    batch[4, 3, 2] = NAN
    assert statistic(batch) == pytest.approx(np.array([statistic(scores) for scores in batch]), abs=1e-12)


@pytest.mark.parametrize("statistic", [*ONE_ARRAY, partial(probability_of_improvement, COMPLETE)])
def test_a_task_without_a_run_is_refused(statistic):
    scores = COMPLETE.copy()
    scores[:, 2] = NAN
    with pytest.raises(ValueError, match="task 2 has no run"):
        statistic(scores)
    with pytest.raises(ValueError, match="task 2 has no run"):
        bootstrap_band(statistic, scores, resamples=10)


@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((0, 3)), np.zeros((3, 0))])
def test_what_is_no_grid_is_refused(scores):
    with pytest.raises(ValueError, match="expected scores of shape"):
        mean(scores)


def test_other_tasks_cannot_be_compared():
    with pytest.raises(ValueError, match="the same tasks twice, got 4 and 3"):
        probability_of_improvement(COMPLETE, COMPLETE[:, :3])


def test_the_interval_of_two_runs_is_known():
    """Of 0 and 1 every resample is 00, 01, 10 or 11: the mean is 0, 1/2 or 1, with chances 1/4, 1/2, 1/4."""
    scores = np.array([[0.0], [1.0]])
    wide = bootstrap_interval(mean, scores, confidence=0.6)
    narrow = bootstrap_interval(mean, scores, confidence=0.4)
    assert (wide.low, wide.value, wide.high) == (0.0, 0.5, 1.0)
    assert (narrow.low, narrow.value, narrow.high) == (0.5, 0.5, 0.5)


def test_tasks_are_resampled_independently_of_each_other():
    """Two tasks with opposite runs: drawn together, the mean would always be the same."""
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    found = bootstrap_interval(mean, scores)
    assert (found.low, found.high) == (0.0, 1.0)  # 1/16 each for (0, 0) and (1, 1)


def test_arrays_are_resampled_independently_of_each_other():
    scores = np.array([[0.0], [1.0], [2.0], [3.0]])
    found = bootstrap_interval(lambda x, y: mean(x) - mean(y), scores, scores)
    assert found.low < 0 < found.high


def test_missing_runs_stay_missing_in_every_resample():
    """A task keeps its own number of runs: those that are there are drawn, and never a missing one."""
    scores = np.array([[1.0, 10.0], [NAN, 20.0], [2.0, NAN], [NAN, 30.0]])
    drawn = []

    def spy(batch):
        drawn.append(batch.reshape(-1, 4, 2))
        return mean(batch)

    bootstrap_interval(spy, scores, resamples=500)
    resamples = np.concatenate(drawn[1:])  # the first call is for the value itself
    assert (np.count_nonzero(~np.isnan(resamples), axis=1) == [2, 3]).all()
    for task, runs in enumerate(([1.0, 2.0], [10.0, 20.0, 30.0])):
        found, counts = np.unique(resamples[:, :, task][~np.isnan(resamples[:, :, task])], return_counts=True)
        assert found.tolist() == runs
        assert counts / counts.sum() == pytest.approx(np.full(len(runs), 1 / len(runs)), abs=0.05)


def test_the_seed_decides_the_interval():
    scores = matrices()["wide"]
    first, same, other = (bootstrap_interval(mean, scores, resamples=500, seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert first.value == other.value


def test_there_are_as_many_resamples_as_asked_for():
    seen = []

    def counting(batch):
        seen.append(batch.shape[0] if batch.ndim == 3 else 0)
        return mean(batch)

    bootstrap_interval(counting, matrices()["wide"], resamples=1001)
    assert sum(seen) == 1001
    assert len(seen) > 2  # in more than one chunk


def test_a_statistic_that_mixes_the_batch_is_refused():
    with pytest.raises(ValueError, match="must keep leading axes"):
        bootstrap_interval(lambda scores: np.full(3, scores.mean()), COMPLETE, resamples=10)


@pytest.mark.parametrize("settings", [{"resamples": 0}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match="expected resamples"):
        bootstrap_interval(mean, COMPLETE, **settings)
