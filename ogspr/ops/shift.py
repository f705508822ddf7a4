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
    height, width = frames.shape[2:]
    rows, columns = moved_places(height, offsets[:, :1], pad), moved_places(width, offsets[:, 1:], pad)
    choose = every_pixel if frames.is_cuda else whole_rows_then_pixels
    return choose(frames, slots, rows, columns)


def moved_places(length: int, offset: Tensor, pad: int) -> Tensor:
    """Where each row (or column) of a shifted picture comes from: (N, 1) -> (N, length)."""
    return (torch.arange(length, device=offset.device) + offset - pad).clamp(0, length - 1)


def every_pixel(frames: Tensor, slots: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels of frame stacks by rows (N, H) and columns (N, W): (N, S * C, H, W)."""
    channel = torch.arange(frames.shape[1], device=frames.device)[:, None, None]
    slot, row = slots[:, :, None, None, None], rows[:, None, None, :, None]
    return frames[slot, channel, row, columns[:, None, None, None]].flatten(1, 2)


def whole_rows_then_pixels(frames: Tensor, slots: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The same, channels last, several times as fast on a CPU: what is chosen lies together in memory."""
    channels, height, width = frames.shape[1:]
    planes = slots[:, :, None] * channels + torch.arange(channels)
    chosen_rows = planes[..., None] * height + rows[:, None, None]
    moved_down = frames.view(-1, width).index_select(0, chosen_rows.flatten())
    pixels = moved_down.view(len(slots), -1, height, width).permute(0, 2, 3, 1).contiguous()
    lines = torch.arange(len(slots) * height).view(len(slots), height, 1)
    chosen_pixels = lines * width + columns[:, None]
    moved = pixels.view(-1, pixels.shape[-1]).index_select(0, chosen_pixels.flatten())
    return moved.view_as(pixels).permute(0, 3, 1, 2)


def scaled_pixels(pixels: Tensor, low: float, high: float) -> Tensor:
    """Bytes 0 .. 255 -> floats low .. high."""
    return pixels.float() * ((high - low) / 255.0) + low
