import math

import pytest
import torch

from ogspr.agents.drqv2 import DrQv2Config
from ogspr.ops.values import truncated_normal

ONE = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 1.0), (100, 0.91), (500, 0.55), (999, 0.1009), (1000, 0.1), (10**7, 0.1)]
)
def test_the_schedule_is_a_straight_line_that_ends_and_stays(step, expected):
    config = DrQv2Config(noise_start=1.0, noise_end=0.1, noise_steps=1000)
    assert config.noise_scale(step) == pytest.approx(expected)


def test_noise_is_scaled_then_clipped_then_the_action_is_kept_inside():
    mean = torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.8, -0.9]])
    normals = torch.tensor([[0.5, 2.0, -2.0, -0.2, 2.0, -2.0]])
    found = truncated_normal(mean, torch.tensor(0.5), normals, 0.3)
    assert found[0].tolist() == pytest.approx([0.25, 0.3, -0.3, 0.4, 1 - 1e-6, -1 + 1e-6], abs=1e-7)


def test_without_a_limit_only_the_borders_clip():
    found = truncated_normal(torch.zeros(4), torch.tensor(0.5), torch.tensor([1.9, -1.9, 5.0, -5.0]))
    assert found.tolist() == pytest.approx([0.95, -0.95, 1 - 1e-6, -1 + 1e-6], abs=1e-7)
    assert bool((found.abs() < 1.0).all())


def test_the_gradient_passes_both_clips_of_an_action():
    mean = torch.tensor([0.0, 0.0, 0.95, -0.95], requires_grad=True)
    normals = torch.tensor([0.1, 9.0, 9.0, -9.0])
    truncated_normal(mean, ONE, normals, 0.3).sum().backward()
    assert mean.grad.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_a_scale_that_is_filled_anew_is_read_anew():
    scale = torch.tensor(math.nan)
    scale.fill_(0.25)
    assert truncated_normal(torch.zeros(1), scale, torch.ones(1)).tolist() == [0.25]
