"""The two-hot code on symexp bins."""

import math

import pytest
import torch

from ogspr.ops.values import symexp, symexp_bins, two_hot, two_hot_cross_entropy

BINS = symexp_bins(65, 10.0)
LARGEST = 22025.4658  # exp(10) - 1


def inside_values() -> torch.Tensor:
    """Of both signs and all sizes, from the smallest to the ends of the bins."""
    sizes = torch.logspace(-8, math.log10(LARGEST), 2000)
    return torch.cat((-sizes, sizes)).clamp(float(BINS[0]), float(BINS[-1]))


def decoded(values: torch.Tensor) -> torch.Tensor:
    """The number that the code of each stands for."""
    return two_hot(values, BINS) @ BINS


def test_symexp_by_hand():
    x = torch.tensor([-1.0, 0.0, math.log(3.0)])
    torch.testing.assert_close(symexp(x), torch.tensor([1.0 - math.e, 0.0, 2.0]))


def test_bins_are_antisymmetric_and_end_at_symexp_of_the_limit():
    assert len(BINS) == 65
    assert BINS[-1].item() == pytest.approx(LARGEST, rel=1e-7)
    assert torch.equal(BINS, -BINS.flip(0))
    assert BINS[32] == 0.0
    assert bool((BINS.diff() > 0).all())


def test_bins_are_an_even_grid_seen_through_symexp():
    grid = torch.sign(BINS) * torch.log1p(BINS.abs())
    torch.testing.assert_close(grid, torch.linspace(-10.0, 10.0, 65), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 64])
def test_even_or_too_few_bins_are_refused(count):
    with pytest.raises(ValueError, match=f"odd number of bins, at least 3.* got {count}"):
        symexp_bins(count, 10.0)


def test_inside_the_bins_the_value_comes_back():
    """Beside zero, what a float32 share of almost one cannot tell from one is lost: some 1e-8."""
    values = inside_values()
    torch.testing.assert_close(decoded(values), values, rtol=1e-6, atol=4e-8)


def test_zero_comes_back_exactly():
    assert decoded(torch.zeros(1)).item() == 0.0


def test_bin_values_are_one_hot():
    assert torch.equal(two_hot(BINS, BINS), torch.eye(65))


@pytest.mark.parametrize("factor", [1.0001, 2.0, 1e6, math.inf])
def test_values_beyond_the_bins_count_as_the_outermost(factor):
    code = two_hot(torch.tensor([-LARGEST * factor, LARGEST * factor]), BINS)
    assert torch.equal(code, torch.eye(65)[[0, -1]])


def test_two_neighbours_share_the_weight_one():
    code = two_hot(inside_values(), BINS)
    assert bool((code >= 0.0).all())
    torch.testing.assert_close(code.sum(1), torch.ones(len(code)), rtol=1e-6, atol=0.0)
    for row in code:
        used = row.nonzero()[:, 0].tolist()
        assert len(used) == 1 or used == [used[0], used[0] + 1]


def test_code_by_hand():
    bins = torch.tensor([-2.0, 0.0, 2.0, 6.0])
    code = two_hot(torch.tensor([-0.5, 3.0, 7.0]), bins)
    assert code.tolist() == [[0.25, 0.75, 0.0, 0.0], [0.0, 0.0, 0.75, 0.25], [0.0, 0.0, 0.0, 1.0]]


def test_cross_entropy_is_that_of_the_dense_code():
    generator = torch.Generator().manual_seed(0)
    values = torch.cat((inside_values()[::100], BINS, torch.tensor([-1e9, 0.0, 1e9])))
    logits = 3.0 * torch.randn(len(values), 65, generator=generator)
    dense = -(two_hot(values, BINS) * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(two_hot_cross_entropy(logits, values, BINS), dense)


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_number_of_bins():
    loss = two_hot_cross_entropy(torch.zeros(3, 65), torch.tensor([-5.0, 0.1, 1e9]), BINS)
    assert loss.item() == pytest.approx(math.log(65))


def test_the_gradient_leads_to_the_value():
    """softmax - code, the gradient of a cross-entropy, at the logits."""
    values = torch.tensor([0.7, -300.0])
    logits = torch.zeros(2, 65, requires_grad=True)
    two_hot_cross_entropy(logits, values, BINS).backward()
    torch.testing.assert_close(logits.grad, (torch.full((2, 65), 1 / 65) - two_hot(values, BINS)) / 2)
