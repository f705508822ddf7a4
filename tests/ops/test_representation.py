"""Effective rank and dead units by hand numbers."""

import math

import pytest
import torch

from ogspr.agents.metrics import dead_share, effective_rank


def hadamard(doublings: int) -> torch.Tensor:
    """Orthogonal columns of plus and minus one; all but the first have mean zero."""
    matrix = torch.ones(1, 1)
    for _ in range(doublings):
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix


def rank(features: torch.Tensor) -> float:
    return effective_rank(features).item()


@pytest.mark.parametrize("directions", [1, 2, 7, 15])
def test_orthogonal_directions_of_equal_size_count_each(directions):
    assert rank(hadamard(4)[:, 1 : 1 + directions]) == pytest.approx(directions, rel=1e-5)


def test_a_constant_does_not_count_as_a_direction():
    features = hadamard(4)[:, :4]
    assert rank(features) == pytest.approx(3, rel=1e-5)
    assert rank(features + 100.0) == pytest.approx(3, rel=1e-3)


def test_one_direction_is_rank_one():
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(-3.0, 5.0, 64)[:, None]
    assert rank(ramp * torch.randn(1, 20, generator=generator)) == pytest.approx(1, abs=1e-3)


def test_unequal_directions_by_hand():
    """Singular values 3 : 1, shares 3/4 and 1/4: exp of their entropy."""
    features = hadamard(3)[:, 1:3] * torch.tensor([3.0, 1.0])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert rank(features) == pytest.approx(math.exp(entropy), rel=1e-5)


@pytest.mark.parametrize("constant", [0.0, 1.0, -2.5])
def test_where_nothing_varies_the_rank_is_zero(constant):
    assert rank(torch.full((8, 5), constant)) == 0.0


@pytest.mark.parametrize("batch", [8, 100, 256])
def test_where_nothing_varies_the_rank_is_zero_whatever_the_constant(batch):
    assert rank(torch.full((batch, 5), 0.1)) == 0.0


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1e4])
def test_rank_does_not_depend_on_scale(scale):
    features = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    assert rank(scale * features) == pytest.approx(rank(features), rel=1e-4)
    assert 10 < rank(features) <= 16


def test_a_batch_of_b_has_at_most_b_minus_one_directions():
    features = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    assert 3 < rank(features) <= 4 + 1e-3


def test_dead_units_by_hand():
    """Deviations 1, 0, 0.05 and 0.005 beside a root mean square of 2.12: the limit is 0.0212."""
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    features = sign * torch.tensor([1.0, 0.0, 0.05, 0.005]) + torch.tensor([4.0, 1.0, 0.0, 0.0])
    assert math.sqrt((16 + 1 + 1 + 0.05**2 + 0.005**2) / 4) == pytest.approx(2.12, abs=0.01)
    assert dead_share(features).item() == 0.5
    assert dead_share(features, threshold=0.03).item() == 0.75
    assert dead_share(features, threshold=0.001).item() == 0.25


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 333.3])
def test_constant_units_are_dead(constant):
    assert dead_share(torch.full((100, 7), constant)).item() == 1.0


def test_units_that_react_are_alive():
    assert dead_share(hadamard(4)[:, 1:]).item() == 0.0


def test_dead_share_does_not_depend_on_scale():
    features = torch.cat((hadamard(3)[:, 1:], torch.ones(8, 2)), 1)
    assert dead_share(1e-4 * features).item() == dead_share(1e4 * features).item() == pytest.approx(2 / 9)
