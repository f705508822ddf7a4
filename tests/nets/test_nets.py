"""Sizes, initial weights and what the modules compute."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from ogspr.agents.modules import parameter_count
from ogspr.errors import UserError
from ogspr.nets import MLP, ConvEncoder, FrameDecoder, ParallelMLP, SpectralLinear, orthogonal

SIZES = (11, 40, 30, 7)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def check_initial(weight: torch.Tensor, bias: torch.Tensor, fan_in: int, fan_out: int) -> None:
    """Uniform up to the Xavier bound with the gain of ReLU: within it, near it, on both sides."""
    bound = math.sqrt(2.0) * math.sqrt(6.0 / (fan_in + fan_out))
    assert weight.numel() > 200
    assert 0.95 * bound < weight.max().item() <= bound
    assert -bound <= weight.min().item() < -0.95 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3.0), rel=0.1)
    assert bool((bias == 0.0).all())


def check_initial_convolution(layer: nn.Conv2d | nn.ConvTranspose2d) -> None:
    area = math.prod(layer.kernel_size)
    check_initial(layer.weight, layer.bias, area * layer.in_channels, area * layer.out_channels)


def convolutions(module: nn.Module) -> list[nn.Conv2d | nn.ConvTranspose2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]


def parameter_shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return sorted(tuple(parameter.shape) for parameter in module.parameters())


def test_the_encoder_flattens_84_by_84_pictures_to_1568_features():
    encoder = ConvEncoder((9, 84, 84), channels=32, features=512)
    assert encoder.head.in_features == 1568
    assert encoder(torch.rand(2, 9, 84, 84)).shape == (2, 512)


@pytest.mark.parametrize("size", [(31, 31), (31, 84), (40, 33), (64, 64), (100, 85)])
def test_the_encoder_takes_all_sizes_from_31(size):
    encoder = ConvEncoder((4, *size), channels=8, features=16)
    assert encoder(torch.rand(3, 4, *size)).shape == (3, 16)


@pytest.mark.parametrize("size", [(30, 30), (84, 30), (30, 84), (1, 1)])
def test_smaller_pictures_are_refused(size):
    with pytest.raises(UserError, match=f"{size[0]}x{size[1]} pixels are too small.*31x31"):
        ConvEncoder((9, *size), channels=32, features=512)


def test_the_encoder_is_four_convolutions_with_elu_then_linear_layer_norm_elu():
    encoder = ConvEncoder((3, 37, 35), channels=8, features=16)
    images = torch.rand(5, 3, 37, 35)
    x = images
    for convolution, stride in zip(convolutions(encoder), (2, 2, 2, 1), strict=True):
        x = F.elu(F.conv2d(x, convolution.weight, convolution.bias, stride))
    expected = F.elu(F.layer_norm(encoder.head(x.flatten(1)), (16,)))
    torch.testing.assert_close(encoder(images), expected)


@pytest.mark.parametrize("length", range(31, 101))
def test_the_decoder_draws_exactly_the_size_asked_for(length):
    other = 131 - length  # every width, too
    decoder = FrameDecoder(6, 8, (5, 4, 3), (3, length, other))
    assert decoder(torch.rand(2, 6)).shape == (2, 3, length, other)


def test_the_decoder_has_the_layers_of_the_authors_for_84_by_84_pictures():
    decoder = FrameDecoder(512, 128, (64, 64, 32), (3, 84, 84))
    assert decoder.expand.weight.shape == (128, 512)
    shapes = [tuple(layer.weight.shape) for layer in convolutions(decoder)]
    assert shapes == [(128, 64, 7, 7), (64, 64, 6, 6), (64, 32, 6, 6), (32, 3, 6, 6)]
    assert parameter_count(decoder) == 691_875


@pytest.mark.parametrize(("side", "kernel"), [(84, 7), (40, 2), (36, 1), (64, 5), (96, 9), (31, 1)])
def test_the_kernel_of_the_first_layer_is_as_large_as_its_picture(side, kernel):
    assert FrameDecoder(8, 8, (8, 8, 8), (3, side, side)).first.weight.shape[2:] == (kernel, kernel)


def test_spectral_normalisation_bounds_the_first_layer_of_the_decoder():
    decoder = FrameDecoder(64, 32, (8, 8, 8), (3, 40, 40))
    # A weight that was not the initial one: the power iteration has to find its largest value anew.
    with torch.no_grad():
        decoder.expand.weight.mul_(30.0).add_(torch.rand(32, 64))
        for _ in range(20):
            decoder(torch.rand(1, 64))
    assert torch.linalg.matrix_norm(decoder.expand.effective_weight(), 2).item() == pytest.approx(
        1.0, rel=1e-2
    )


def test_only_the_first_layer_of_the_decoder_is_normalised():
    decoder = FrameDecoder(16, 8, (8, 8, 8), (3, 84, 84))
    normalised = [name for name, layer in decoder.named_modules() if isinstance(layer, SpectralLinear)]
    assert normalised == ["expand"]


def test_spectral_normalisation_is_torchs():
    """Value, gradient and the vectors of the power iteration, over some steps in training and one without."""
    ours = SpectralLinear(7, 5)
    theirs = spectral_norm(nn.Linear(7, 5))
    original = theirs.parametrizations.weight.original
    with torch.no_grad():
        original.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
        theirs.parametrizations.weight[0]._u.copy_(ours.left)
        theirs.parametrizations.weight[0]._v.copy_(ours.right)
    for step in range(4):
        for layer in (ours, theirs):
            layer.train(step < 3)
        x = torch.randn(3, 7)
        outputs = ours(x), theirs(x)
        torch.testing.assert_close(*outputs)
        gradients = [
            torch.autograd.grad(output.square().sum(), weight)[0]
            for output, weight in zip(outputs, (ours.weight, original), strict=True)
        ]
        torch.testing.assert_close(*gradients)
        with torch.no_grad():
            for weight, gradient in zip((ours.weight, original), gradients, strict=True):
                weight.sub_(0.1 * gradient)
    torch.testing.assert_close(ours.right, theirs.parametrizations.weight[0]._v)


@pytest.mark.parametrize(
    ("side", "painted"), [(84, [7, 18, 40, 84]), (40, [2, 8, 18, 40]), (33, [1, 6, 16, 34])]
)
def test_the_decoder_is_four_transposed_convolutions_with_relu_between(side, painted):
    """No activation before the first and after the last; too much is cut off below and on the right."""
    decoder = FrameDecoder(16, 32, (12, 10, 8), (3, side, side)).eval()
    for layer in convolutions(decoder):
        nn.init.normal_(layer.bias)
    first, *later = convolutions(decoder)
    z = torch.randn(4, 16)
    x = F.conv_transpose2d(decoder.expand(z)[:, :, None, None], first.weight, first.bias, stride=2)
    assert x.shape[-1] == painted[0]
    for layer, size in zip(later, painted[1:], strict=True):
        x = F.conv_transpose2d(F.relu(x), layer.weight, layer.bias, stride=2)
        assert x.shape[-1] == size
        x = x[:, :, : layer._size[0], : layer._size[1]]
    torch.testing.assert_close(decoder(z), x, rtol=1e-4, atol=1e-4)
    assert x.min() < 0.0


def test_an_mlp_is_linear_layers_with_layer_norm_and_activation_between():
    mlp = MLP(SIZES, F.elu)
    x = torch.randn(5, 11)
    hidden = x
    for layer in mlp.layers[:-1]:
        z = hidden @ layer.weight.T + layer.bias
        centred = z - z.mean(1, keepdim=True)
        hidden = F.elu(centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt())
    expected = hidden @ mlp.layers[-1].weight.T + mlp.layers[-1].bias
    torch.testing.assert_close(mlp(x), expected)


def test_parallel_mlps_equal_separate_ones_of_the_same_weights():
    both = ParallelMLP(2, SIZES, F.elu)
    for parameter in both.parameters():
        nn.init.normal_(parameter)  # biases too
    x = torch.randn(5, 11)
    together = both(x)
    assert together.shape == (2, 5, 7)
    for member, output in enumerate(together):
        alone = MLP(SIZES, F.elu)
        for layer, shared in zip(alone.layers, both.layers, strict=True):
            layer.weight.data.copy_(shared.weight[member].T)
            layer.bias.data.copy_(shared.bias[member, 0])
        torch.testing.assert_close(output, alone(x), rtol=1e-4, atol=1e-4)


def test_members_of_a_parallel_mlp_begin_different():
    first, second = ParallelMLP(2, SIZES, F.elu)(torch.randn(5, 11))
    assert not torch.allclose(first, second)


def test_layer_norm_has_no_parameters():
    linear_shapes = [shape for a, b in pairwise(SIZES) for shape in ((b, a), (b,))]
    assert parameter_shapes(MLP(SIZES, F.elu)) == sorted(linear_shapes)
    encoder = ConvEncoder((9, 31, 31), channels=32, features=64)
    convolution_shapes = [(32, 9, 3, 3), *[(32, 32, 3, 3)] * 3, *[(32,)] * 4]
    assert parameter_shapes(encoder) == sorted([*convolution_shapes, (64, 32), (64,)])


def test_initial_weights_of_an_mlp():
    for layer in MLP(SIZES, F.elu).layers:
        check_initial(layer.weight, layer.bias, layer.in_features, layer.out_features)


def test_initial_weights_of_each_member_of_a_parallel_mlp():
    for layer, (inputs, outputs) in zip(ParallelMLP(3, SIZES, F.elu).layers, pairwise(SIZES), strict=True):
        for weight, bias in zip(layer.weight, layer.bias, strict=True):
            check_initial(weight, bias, inputs, outputs)


def test_initial_weights_of_the_encoder():
    encoder = ConvEncoder((9, 84, 84), channels=32, features=512)
    layers = convolutions(encoder)
    assert len(layers) == 4
    for convolution in layers:
        check_initial_convolution(convolution)
    check_initial(encoder.head.weight, encoder.head.bias, 1568, 512)


def check_orthogonal(weight: torch.Tensor, bias: torch.Tensor, gain: float) -> None:
    """All singular values of the weight as a matrix are `gain`, and the biases are zero."""
    values = torch.linalg.svdvals(weight.detach().flatten(1))
    torch.testing.assert_close(values, torch.full_like(values, gain), rtol=1e-4, atol=1e-4)
    assert bool((bias == 0.0).all())


def test_orthogonal_weights_of_every_kind_of_layer():
    """Gain 1 for linear layers, sqrt 2 for convolutions and transposed ones."""
    encoder = ConvEncoder((9, 84, 84), 32, 512, orthogonal)
    decoder = FrameDecoder(512, 128, (64, 64, 32), (3, 84, 84))
    layers = [*convolutions(encoder), *convolutions(decoder)]
    assert len(layers) == 8
    for layer in layers:
        check_orthogonal(layer.weight, layer.bias, math.sqrt(2.0))
    for layer in (encoder.head, decoder.expand, *MLP(SIZES, F.elu, orthogonal).layers):
        check_orthogonal(layer.weight, layer.bias, 1.0)
    for layer in ParallelMLP(3, SIZES, F.elu, orthogonal).layers:
        for weight, bias in zip(layer.weight, layer.bias, strict=True):
            check_orthogonal(weight, bias, 1.0)
