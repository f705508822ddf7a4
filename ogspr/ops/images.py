"""Images as bytes: random shift, scaling, and the first layer of an encoder, which reads them in place.

A random shift is padding by repeating the border and cropping at a random place. Written out, a batch of
shifted images is the largest thing an update touches, and it is read once. On a GPU in bf16 a kernel
therefore shifts, scales and convolves the bytes of replay where they are; elsewhere the images are made.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
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
    """Where each row (or column) of a shifted image comes from: (N, 1) -> (N, length)."""
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


KERNEL = 3
STRIDE = 2
# Tensor cores want channels in multiples of 8; with 9, the convolution would run without them.
_CHANNEL_MULTIPLE = 16
_SMALLEST_TILE = 16
# Bytes minus this are centred, so that sums of products stay small.
BYTE_CENTRE = 128


def first_layer(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ELU of a 3x3 convolution with stride 2, of images: (N, S * C, H, W) -> (N, D, H', W')."""
    images = _channels_last_on_cpu(images)
    missing = -images.shape[1] % _CHANNEL_MULTIPLE if images.is_cuda else 0
    widen = (0, 0, 0, 0, 0, missing)
    return F.elu(F.conv2d(F.pad(images, widen), F.pad(weight, widen), bias, STRIDE))


def first_layer_of_stacks(
    frames: Tensor,
    slots: Tensor,
    offsets: Tensor,
    pad: int,
    pixel_range: tuple[float, float],
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """The same, of shifted frame stacks in replay: (slots, C, H, W), (N, S), (N, 2) -> (N, D, H', W')."""
    channels = weight.shape[0]
    tiles = channels >= _SMALLEST_TILE and channels.bit_count() == 1  # what the kernel can do
    if tiles and frames.is_cuda and torch.is_autocast_enabled("cuda"):
        output: Tensor = _fused(frames, slots, offsets, pad, *pixel_range, weight, bias)
        return output
    pictures = _channels_last_on_cpu(shifted_stacks(frames, slots, offsets, pad))
    # The weights are scaled instead of the images: those are far larger, and without a border of zeros
    # the result is the same.
    scale, shift = _affine(*pixel_range, centre=0)
    return first_layer(pictures.float(), weight * scale, bias + shift * weight.sum((1, 2, 3)))


def _channels_last_on_cpu(images: Tensor) -> Tensor:
    """Channels last: convolutions on a CPU are several times faster so."""
    return images if images.is_cuda else images.contiguous(memory_format=torch.channels_last)


def output_size(length: int) -> int:
    return (length - KERNEL) // STRIDE + 1


def _affine(low: float, high: float, centre: int) -> tuple[float, float]:
    """Factor and summand that turn a byte minus `centre` into a scaled pixel."""
    scale = (high - low) / 255.0
    return scale, low + centre * scale


@torch.library.custom_op("ogspr::first_layer", mutates_args=())
def _fused(
    frames: Tensor,
    slots: Tensor,
    offsets: Tensor,
    pad: int,
    low: float,
    high: float,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    from ogspr.ops.first_layer_kernels import forward

    scale, shift = _affine(low, high, BYTE_CENTRE)
    by_frame = weight.float().reshape(weight.shape[0], slots.shape[1], -1)
    moved_bias = bias.float() + shift * by_frame.sum((1, 2))
    return forward(frames, slots, offsets, pad, by_frame, moved_bias, scale)


@_fused.register_fake
def _(
    frames: Tensor,
    slots: Tensor,
    offsets: Tensor,  # noqa: ARG001
    pad: int,  # noqa: ARG001
    low: float,  # noqa: ARG001
    high: float,  # noqa: ARG001
    weight: Tensor,
    bias: Tensor,  # noqa: ARG001
) -> Tensor:
    height, width = output_size(frames.shape[2]), output_size(frames.shape[3])
    shape = (slots.shape[0], weight.shape[0], height, width)
    return torch.empty(shape, dtype=torch.bfloat16, device=frames.device, memory_format=torch.channels_last)


@torch.library.custom_op("ogspr::first_layer_gradients", mutates_args=())
def _fused_gradients(
    frames: Tensor,
    slots: Tensor,
    offsets: Tensor,
    pad: int,
    low: float,
    high: float,
    output: Tensor,
    gradient: Tensor,
) -> tuple[Tensor, Tensor]:
    from ogspr.ops.first_layer_kernels import backward

    scale, shift = _affine(low, high, BYTE_CENTRE)
    products, bias_gradient = backward(frames, slots, offsets, pad, output, gradient)
    channels = slots.shape[1] * frames.shape[1]
    weight_gradient = scale * products + shift * bias_gradient[:, None, None]
    return weight_gradient.reshape(-1, channels, KERNEL, KERNEL).contiguous(), bias_gradient


@_fused_gradients.register_fake
def _(
    frames: Tensor,
    slots: Tensor,
    offsets: Tensor,  # noqa: ARG001
    pad: int,  # noqa: ARG001
    low: float,  # noqa: ARG001
    high: float,  # noqa: ARG001
    output: Tensor,
    gradient: Tensor,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:
    channels = slots.shape[1] * frames.shape[1]
    weight = torch.empty(output.shape[1], channels, KERNEL, KERNEL, device=frames.device)
    return weight, torch.empty(output.shape[1], device=frames.device)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    frames, slots, offsets, *settings = inputs[:6]
    ctx.save_for_backward(frames, slots, offsets, output)
    ctx.settings = settings  # type: ignore[attr-defined]


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
    frames, slots, offsets, output = ctx.saved_tensors  # type: ignore[attr-defined]
    pad, low, high = ctx.settings  # type: ignore[attr-defined]
    weight, bias = _fused_gradients(frames, slots, offsets, pad, low, high, output, gradient)
    return None, None, None, None, None, None, weight, bias


_fused.register_autograd(_backward, setup_context=_save)
