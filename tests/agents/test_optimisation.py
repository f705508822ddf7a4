"""What an optimiser's states tell about its steps."""

import pytest
import torch
from torch import nn

from ogspr.agents.optimisation import ClippedAdamW, gradient_between


def optimiser():
    """Two groups, with parameters of odd sizes, whose gradients are clipped to a length of 10."""
    named = {name: nn.Parameter(torch.randn(size)) for name, size in {"a": 3, "b": 5, "c": 2}.items()}
    groups = ({"a": named["a"], "b": named["b"]}, {"c": named["c"]})
    return ClippedAdamW(groups, learning_rate=0.1, weight_decay=0.1, clip_norm=10.0, accelerate=lambda f: f)


def step(subject, gradients, skip=0.0):
    vectors = subject.gather(gradients)
    subject.step(vectors, [vector.norm() for vector in vectors], torch.tensor(skip))


def state(subject):
    return {name: tensor.clone() for name, tensor in subject.state_dict().items()}


def test_two_states_tell_the_gradient_of_the_step_between_them():
    torch.manual_seed(0)
    subject = optimiser()
    for _ in range(3):
        step(subject, [torch.randn(3), torch.randn(5), torch.randn(2)])
    before = state(subject)
    gradients = [torch.tensor([1.0, 2.0, 3.0]), torch.full((5,), -1.0), torch.tensor([30.0, -40.0])]
    step(subject, gradients)
    clipped = torch.tensor([1.0, 2.0, 3.0, -1.0, -1.0, -1.0, -1.0, -1.0, 6.0, -8.0])
    torch.testing.assert_close(gradient_between(before, state(subject)), clipped, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("skips", [(), (1.0,), (0.0, 0.0)], ids=["none", "left out", "two"])
def test_no_step_or_several_tell_none(skips):
    subject = optimiser()
    before = state(subject)
    for skip in skips:
        step(subject, [torch.ones(3), torch.ones(5), torch.ones(2)], skip)
    assert gradient_between(before, state(subject)) is None
