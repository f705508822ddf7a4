"""Sizes, initial weights and what the modules compute."""

import math

import pytest
import torch
import torch.nn.functional as F

from ogspr.agents.drqv2.networks import FlatEncoder, ParallelReLUMLP, ReLUMLP, Trunk
from ogspr.errors import UserError


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def assert_orthogonal(weight: torch.Tensor, gain: float) -> None:
    """Rows, or columns where they are fewer, at right angles and of length `gain`."""
    matrix = weight.detach().flatten(1).double()
    matrix = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    torch.testing.assert_close(
        matrix @ matrix.T, gain**2 * torch.eye(len(matrix)).double(), atol=1e-5, rtol=0
    )


def test_84_by_84_pictures_become_39200_features():
    encoder = FlatEncoder((9, 84, 84), channels=32)
    assert encoder.size == 32 * 35 * 35 == 39_200
    assert encoder(torch.rand(2, 9, 84, 84)).shape == (2, 39_200)
    assert sum(p.numel() for p in encoder.parameters()) == 30_368


@pytest.mark.parametrize("size", [(15, 15), (15, 84), (32, 33), (64, 16)])
def test_the_encoder_says_how_many_features_it_has(size):
    encoder = FlatEncoder((2, *size), channels=3)
    assert encoder(torch.rand(2, 2, *size)).shape == (2, encoder.size)


@pytest.mark.parametrize("size", [(14, 84), (84, 14)])
def test_smaller_pictures_are_refused(size):
    with pytest.raises(UserError, match=r"too small for the encoder; it needs at least 15x15"):
        FlatEncoder((2, *size), channels=3)


def test_the_encoder_is_four_convolutions_with_relu():
    """Also the first one, which shares its code with encoders that have ELU; values and gradients."""
    encoder, images = FlatEncoder((2, 21, 21), channels=5), torch.randn(3, 2, 21, 21)
    x = F.relu(F.conv2d(images, encoder.first.weight, encoder.first.bias, stride=2))
    for layer in encoder.later:
        x = F.relu(F.conv2d(x, layer.weight, layer.bias))
    assert (x == 0).any()
    torch.testing.assert_close(encoder(images), x.flatten(1))
    toward = torch.randn(3, encoder.size)
    ours, theirs = (
        torch.autograd.grad((out * toward).sum(), tuple(encoder.parameters()))
        for out in (encoder(images), x.flatten(1))
    )
    torch.testing.assert_close(ours, theirs)


def test_stored_frames_are_seen_as_their_shifted_pictures():
    encoder = FlatEncoder((4, 20, 20), channels=5)
    frames = torch.randint(0, 256, (6, 2, 20, 20), dtype=torch.uint8)
    slots, offsets = torch.tensor([[0, 3], [5, 5]]), torch.tensor([[0, 4], [3, 1]])
    padded = F.pad(frames.float(), (2, 2, 2, 2), mode="replicate")
    pictures = torch.stack(
        [
            padded[stack, :, down : down + 20, right : right + 20].flatten(0, 1)
            for stack, (down, right) in zip(slots, offsets.tolist(), strict=True)
        ]
    )
    expected = encoder(pictures / 255.0 - 0.5)
    torch.testing.assert_close(encoder.of_stacks(frames, slots, offsets, 2, (-0.5, 0.5)), expected)


def test_a_trunk_is_linear_norm_and_tanh():
    trunk, x = Trunk(30, 7), torch.randn(5, 30)
    with torch.no_grad():
        trunk.norm.weight.copy_(torch.rand(7))
        trunk.norm.bias.copy_(torch.randn(7))
    y = x @ trunk.linear.weight.T + trunk.linear.bias
    y = (y - y.mean(1, keepdim=True)) / (y.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(trunk(x), torch.tanh(y * trunk.norm.weight + trunk.norm.bias))


def test_networks_that_read_the_same_input_are_each_what_they_would_be_alone():
    pair, x = ParallelReLUMLP(2, (6, 20, 10, 3)), torch.randn(5, 6)
    alone = ReLUMLP((6, 20, 10, 3))
    for member in range(2):
        with torch.no_grad():
            for ours, theirs in zip(alone.layers, pair.layers, strict=True):
                ours.weight.copy_(theirs.weight[member].T)
                ours.bias.copy_(theirs.bias[member, 0].uniform_())
        x1 = F.relu(F.linear(x, alone.layers[0].weight, alone.layers[0].bias))
        x2 = F.relu(F.linear(x1, alone.layers[1].weight, alone.layers[1].bias))
        expected = F.linear(x2, alone.layers[2].weight, alone.layers[2].bias)
        torch.testing.assert_close(alone(x), expected)
        torch.testing.assert_close(pair(x)[member], expected)


def test_initial_weights_are_orthogonal_and_biases_zero():
    encoder, trunk = FlatEncoder((9, 20, 20), channels=16), Trunk(300, 50)
    mlp, pair = ReLUMLP((50, 80, 6)), ParallelReLUMLP(2, (50, 80, 1))
    for layer in (encoder.first, *encoder.later):
        assert_orthogonal(layer.weight, math.sqrt(2.0))
    for layer in (trunk.linear, *mlp.layers):
        assert_orthogonal(layer.weight, 1.0)
    for layer in pair.layers:
        for weight in layer.weight:
            assert_orthogonal(weight.T, 1.0)
        assert not torch.equal(layer.weight[0], layer.weight[1])
    modules = (encoder, trunk, mlp, pair)
    biases = [p for m in modules for name, p in m.named_parameters() if name.endswith("bias")]
    assert len(biases) == 4 + 2 + 2 + 2
    assert not any(bias.any() for bias in biases)
    assert bool((trunk.norm.weight == 1.0).all())
