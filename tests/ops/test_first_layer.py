"""The first layer of an encoder against a convolution of scaled pictures in float64."""

import pytest
import torch
import torch.nn.functional as F

from ogspr.ops.images import first_layer_of_stacks, shifted_stacks


@pytest.mark.parametrize("pixel_range", [(-0.5, 0.5), (0.0, 1.0)])
def test_scaling_the_weights_is_scaling_the_pictures(pixel_range):
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (10, 3, 20, 24), dtype=torch.uint8, generator=generator)
    slots = torch.randint(0, 10, (6, 3), generator=generator)
    offsets = torch.randint(0, 9, (6, 2), generator=generator)
    weight = torch.randn(16, 9, 3, 3, generator=generator).requires_grad_()
    bias = torch.randn(16, generator=generator).requires_grad_()
    found = first_layer_of_stacks(frames, slots, offsets, 4, pixel_range, weight, bias)

    exact_weight, exact_bias = (tensor.detach().double().requires_grad_() for tensor in (weight, bias))
    low, high = pixel_range
    pictures = shifted_stacks(frames, slots, offsets, 4).double() / 255 * (high - low) + low
    expected = F.elu(F.conv2d(pictures, exact_weight, exact_bias, stride=2))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)

    direction = torch.randn(expected.shape, generator=generator)
    gradients = torch.autograd.grad((found * direction).sum(), (weight, bias))
    exact = torch.autograd.grad((expected * direction).sum(), (exact_weight, exact_bias))
    for gradient, wanted in zip(gradients, exact, strict=True):
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-3)
