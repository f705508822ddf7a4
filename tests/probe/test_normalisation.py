import numpy as np
import pytest

from ogspr.probe.probing import RunningMoments


def shown(*batches):
    moments = RunningMoments(batches[0].shape[1])
    for batch in batches:
        moments.add(batch)
    return moments


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 50), (99,), (30, 30, 60)])
def test_any_way_of_cutting_up_a_stream_gives_what_numpy_says_of_the_whole(cuts):
    numbers = np.random.default_rng(0).normal([0, 1e6, -3], [1, 1e-2, 40], (100, 3))
    moments = shown(*np.split(numbers, cuts))
    assert moments.count == 100
    np.testing.assert_allclose(moments.mean, numbers.mean(0), rtol=1e-12)
    # Of numbers around 1e6, ten digits of the distance from their mean are left.
    np.testing.assert_allclose(moments.variance, numbers.var(0), rtol=1e-8)
    expected = (numbers - numbers.mean(0)) / numbers.std(0)
    np.testing.assert_allclose(moments.normalised(numbers), expected, atol=1e-6)


def test_statistics_are_those_after_each_batch():
    numbers = np.random.default_rng(1).normal(2, 5, (60, 2))
    moments = RunningMoments(2)
    for first in range(0, 60, 20):
        moments.add(numbers[first : first + 20])
        np.testing.assert_allclose(moments.variance, numbers[: first + 20].var(0), rtol=1e-12)


def test_what_never_moved_is_only_centred():
    seen = np.column_stack((np.full(10, 3.0), np.arange(10.0)))
    moments = shown(seen)
    later = moments.normalised(np.array([[3.5, 4.5]]))
    assert later.tolist() == [[0.5, 0.0]]
