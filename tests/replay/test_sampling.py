"""Drawing in proportion to weights."""

import numpy as np
import pytest
import torch

from ogspr.replay.buffer import draw_proportional
from tests.ops.chi_square import check_shares

JUST_UNDER_ONE = float(np.nextafter(1.0, 0.0))


def drawn(weights: list[float], uniforms: list[float]) -> list[int]:
    return draw_proportional(torch.tensor(weights), torch.tensor(uniforms, dtype=torch.float64)).tolist()


def test_each_weight_owns_its_stretch_of_the_unit_interval():
    uniforms = [0.0, 0.0999, 0.1001, 0.2999, 0.3001, 0.5999, 0.6001, 0.9999]
    assert drawn([1, 2, 3, 4], uniforms) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_frequencies_match_weights():
    weights = torch.linspace(0.5, 4.0, 16)
    uniforms = torch.rand(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(draw_proportional(weights, uniforms), minlength=16)
    check_shares(counts, weights)


@pytest.mark.parametrize("uniform", [0.0, 1e-300, 0.5, JUST_UNDER_ONE])
def test_weight_zero_is_never_drawn(uniform):
    assert drawn([0, 0, 3, 0, 0], [uniform]) == [2]


@pytest.mark.parametrize("total", [0.1, 1.0, 3.0, 1e-30, 1e30])
def test_the_ends_of_the_interval_draw_the_outermost_weights(total):
    assert drawn([0, total, total, total, 0], [0.0, JUST_UNDER_ONE]) == [1, 3]


@pytest.mark.parametrize("weight", [1.0, 1.1, 7.3])
@pytest.mark.parametrize("where", [0.001, 0.5, 0.999])
def test_half_a_million_equal_weights_are_drawn_evenly(weight, where):
    """Each at both ends of its share, too: beyond 500,000 float32 knows multiples of 1/32 only, or less."""
    count = 500_000
    uniforms = (torch.arange(count, dtype=torch.float64) + where) / count
    assert torch.equal(draw_proportional(torch.full((count,), weight), uniforms), torch.arange(count))
