"""The random shift against padding and cropping."""

import itertools

import numpy as np
import pytest
import torch

from ogspr.ops.images import (
    every_pixel,
    moved_places,
    scaled_pixels,
    shift_offsets,
    shifted_stacks,
    whole_rows_then_pixels,
)
from tests.ops.chi_square import check_shares


def random_frames(slots: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (slots, *shape), dtype=np.uint8)


def cropped(stack: np.ndarray, down: int, right: int, pad: int) -> np.ndarray:
    """(C, H, W) with its border repeated `pad` times, cropped at the offset."""
    height, width = stack.shape[1:]
    padded = np.pad(stack, ((0, 0), (pad, pad), (pad, pad)), mode="edge")
    return padded[:, down : down + height, right : right + width]


@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("shape", [(3, 9, 9), (1, 7, 12), (2, 11, 6), (1, 2, 3)])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("choose", [every_pixel, whole_rows_then_pixels])
def test_every_shift_is_padding_and_cropping_to_the_pixel(pad, shape, frame_stack, choose):
    frames = random_frames(20, *shape)
    offsets = np.array(list(itertools.product(range(2 * pad + 1), repeat=2)))
    slots = np.random.default_rng(1).integers(0, 20, (len(offsets), frame_stack))
    down, right = torch.tensor(offsets).split(1, 1)
    rows, columns = moved_places(shape[1], down, pad), moved_places(shape[2], right, pad)
    shifted = choose(torch.tensor(frames), torch.tensor(slots), rows, columns)
    expected = [
        cropped(np.concatenate(frames[places]), down, right, pad)
        for places, (down, right) in zip(slots, offsets, strict=True)
    ]
    assert shifted.dtype == torch.uint8
    np.testing.assert_array_equal(shifted, np.stack(expected))


def test_the_middle_offset_moves_nothing_and_keeps_the_order_of_frames():
    frames = torch.tensor(random_frames(9, 3, 8, 8))
    slots = torch.tensor([[7, 0, 2], [8, 8, 1]])
    shifted = shifted_stacks(frames, slots, torch.full((2, 2), 4), pad=4)
    assert torch.equal(shifted[0], torch.cat((frames[7], frames[0], frames[2])))
    assert torch.equal(shifted[1], torch.cat((frames[8], frames[8], frames[1])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pad", [0, 1, 2, 3, 4, 8, 100, 1000])
def test_offsets_stay_in_range_at_the_ends_of_the_unit_interval(dtype, pad):
    one = torch.ones((), dtype=dtype)
    just_under_one = torch.nextafter(one, torch.zeros_like(one))
    uniforms = torch.stack((torch.zeros_like(one), just_under_one))
    assert shift_offsets(uniforms, pad).tolist() == [0, 2 * pad]


def test_all_offsets_are_equally_likely():
    uniforms = torch.rand(200_000, 2, generator=torch.Generator().manual_seed(0))
    down, right = shift_offsets(uniforms, pad=4).unbind(1)
    check_shares(torch.bincount(down, minlength=9), np.ones(9))
    check_shares(torch.bincount(right, minlength=9), np.ones(9))
    check_shares(torch.bincount(9 * down + right, minlength=81), np.ones(81))


def test_pixels_are_scaled_to_the_ends_given():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    torch.testing.assert_close(scaled_pixels(pixels, -0.5, 0.5), torch.tensor([-0.5, -0.3, 0.5]))
