"""Random shift: what padding the border by repetition and cropping at a random place gives, by index."""

from __future__ import annotations

import torch
from torch import Tensor


def shift_offsets(uniforms: Tensor, pad: int) -> Tensor:
    """Numbers in [0, 1) -> whole offsets 0 .. 2 pad, each equally likely."""
    return (uniforms * (2 * pad + 1)).long()


def shifted_stacks(frames: Tensor, slots: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """Frame stacks, all frames of a stack moved alike.

    Frames (slots, C, H, W) uint8, slots (N, S), offsets (N, 2) in 0 .. 2 pad (down, right)
    -> (N, S * C, H, W) uint8. Equals replicate-padding by `pad` and cropping at the offset.
    """
    channels, height, width = frames.shape[1:]
    rows = _moved(offsets[:, 0], height, pad)[:, None, None, :, None]
    columns = _moved(offsets[:, 1], width, pad)[:, None, None, None, :]
    channel = torch.arange(channels, device=frames.device)[:, None, None]
    stacks = frames[slots[:, :, None, None, None], channel, rows, columns]
    return stacks.flatten(1, 2)


def _moved(offset: Tensor, length: int, pad: int) -> Tensor:
    """The source coordinate of each target coordinate: (N,) -> (N, length)."""
    places = torch.arange(length, device=offset.device)
    return (places + offset[:, None] - pad).clamp(0, length - 1)


def scaled_pixels(pixels: Tensor, low: float, high: float) -> Tensor:
    """Bytes 0 .. 255 -> floats low .. high."""
    return pixels.float() * ((high - low) / 255.0) + low
