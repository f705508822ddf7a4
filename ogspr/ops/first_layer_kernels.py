"""Triton kernels of the first layer; imported where there is a GPU.

Both read the centred bytes of one frame of a stack as a tile (taps, pixels), taps in the order of a
convolution weight (channel, row, column). Neighbouring threads take neighbouring pixels of one tap, which
lie side by side in memory. All frames of a stack as one tile were tried: slower forwards, equal backwards.
"""

# Triton reads these functions itself: upper-case arguments are known when it compiles, others have no types.
# ruff: noqa: N803, ANN001, ANN202
# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,unused-ignore"

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ogspr.ops.images import BYTE_CENTRE, KERNEL, STRIDE, output_size

# Measured on an H200 at 84x84 pixels, stacks of three colour frames.
_FORWARD = {"PIXELS": 64, "num_warps": 4}
_BACKWARD = {"PIXELS": 64, "num_warps": 2}
_SPLITS = 264  # partial sums of the weight gradient: two for each multiprocessor of a large GPU


def forward(
    frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, weight: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """ELU(scale * weight * centred bytes + bias), bf16, channels last.

    Weight (D, S, taps), bias (D,) -> (N, D, H', W').
    """
    geometry = _geometry(frames, slots, pad)
    channels, (height, width) = weight.shape[0], _output_shape(frames)
    missing = (0, geometry["TAPS"] - weight.shape[2])
    output = torch.empty(
        (slots.shape[0], channels, height, width),
        dtype=torch.bfloat16,
        device=frames.device,
        memory_format=torch.channels_last,
    )
    grid = (slots.shape[0], triton.cdiv(height * width, _FORWARD["PIXELS"]))
    _forward_kernel[grid](
        frames,
        slots.contiguous(),
        offsets.contiguous(),
        F.pad(weight, missing).half(),
        bias,
        output,
        scale,
        CHANNELS=channels,
        **geometry,
        **_FORWARD,
    )
    return output


def backward(
    frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, output: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient by the weight of centred bytes, (D, S, taps), and by the bias, (D,), both float32."""
    geometry = _geometry(frames, slots, pad)
    channels = output.shape[1]
    stack = slots.shape[1]
    products = torch.empty(_SPLITS, stack, geometry["TAPS"], channels, device=frames.device)
    sums = torch.empty(_SPLITS, channels, device=frames.device)
    _backward_kernel[(_SPLITS, stack)](
        frames,
        slots.contiguous(),
        offsets.contiguous(),
        output,
        gradient.contiguous(memory_format=torch.channels_last),
        products,
        sums,
        slots.shape[0],
        SPLITS=_SPLITS,
        CHANNELS=channels,
        **geometry,
        **_BACKWARD,
    )
    real = frames.shape[1] * KERNEL * KERNEL
    return products.sum(0)[:, :real].permute(2, 0, 1), sums.sum(0)


def _output_shape(frames: Tensor) -> tuple[int, int]:
    return output_size(frames.shape[2]), output_size(frames.shape[3])


def _geometry(frames: Tensor, slots: Tensor, pad: int) -> dict[str, Any]:
    channels, height, width = frames.shape[1:]
    out_height, out_width = _output_shape(frames)
    return {
        "STACK": slots.shape[1],
        "FRAME_CHANNELS": channels,
        "HEIGHT": height,
        "WIDTH": width,
        "AREA": out_height * out_width,
        "OUT_WIDTH": out_width,
        "PAD": pad,
        "SIDE": KERNEL,
        "STEP": STRIDE,
        "CENTRE": BYTE_CENTRE,
        # Tiles have powers of two as sides, and matrix units multiply over 16 taps at least.
        "TAPS": max(16, triton.next_power_of_2(channels * KERNEL * KERNEL)),
    }


@triton.jit
def _places(
    offsets,
    image,
    pixel,
    tap,
    FRAME_CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    AREA: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    SIDE: tl.constexpr,
    STEP: tl.constexpr,
):
    """Where in a frame each tap lies at each output pixel of a shifted image: (taps, pixels).

    Taps and pixels beyond the last count as the last: they are read, which is cheaper than a condition, and
    meet a weight or a gradient of zero.
    """
    tap = tl.minimum(tap, FRAME_CHANNELS * SIDE * SIDE - 1)
    pixel = tl.minimum(pixel, AREA - 1)
    down = tl.load(offsets + 2 * image).to(tl.int32) - PAD
    right = tl.load(offsets + 2 * image + 1).to(tl.int32) - PAD
    channel = tap // (SIDE * SIDE)
    place = tap % (SIDE * SIDE)
    y = (pixel // OUT_WIDTH * STEP + down)[None, :] + (place // SIDE)[:, None]
    x = (pixel % OUT_WIDTH * STEP + right)[None, :] + (place % SIDE)[:, None]
    y = tl.minimum(tl.maximum(y, 0), HEIGHT - 1)
    x = tl.minimum(tl.maximum(x, 0), WIDTH - 1)
    return (channel * (HEIGHT * WIDTH))[:, None] + y * WIDTH + x


@triton.jit
def _centred_bytes(frames, slot, places, CENTRE: tl.constexpr, FRAME_BYTES: tl.constexpr):
    """Bytes of one frame minus the centre, exact in float16."""
    # 64 bits: half a million frames are more bytes than 32 bits can count.
    byte = tl.load(frames + slot.to(tl.int64) * FRAME_BYTES + places)
    # 1024 + byte has the byte as its last digits: cheaper than a conversion of integers.
    return (byte.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True) - (1024.0 + CENTRE)


@triton.jit
def _forward_kernel(
    frames,
    slots,
    offsets,
    weight,
    bias,
    output,
    scale,
    STACK: tl.constexpr,
    FRAME_CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    AREA: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    SIDE: tl.constexpr,
    STEP: tl.constexpr,
    CENTRE: tl.constexpr,
    TAPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    image = tl.program_id(0)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.arange(0, CHANNELS)
    tap = tl.arange(0, TAPS)
    places = _places(
        offsets, image, pixel, tap, FRAME_CHANNELS, HEIGHT, WIDTH, AREA, OUT_WIDTH, PAD, SIDE, STEP
    )
    total = tl.zeros((CHANNELS, PIXELS), tl.float32)
    for frame in tl.static_range(STACK):
        slot = tl.load(slots + image * STACK + frame)
        bytes_ = _centred_bytes(frames, slot, places, CENTRE, FRAME_CHANNELS * HEIGHT * WIDTH)
        factors = tl.load(weight + (channel[:, None] * STACK + frame) * TAPS + tap[None, :])
        total = tl.dot(factors, bytes_, total)
    total = total * scale + tl.load(bias + channel)[:, None]
    total = tl.where(total > 0, total, tl.exp(total) - 1.0)
    goal = output + (image.to(tl.int64) * AREA + pixel)[:, None] * CHANNELS + channel[None, :]
    tl.store(goal, tl.trans(total.to(tl.bfloat16)), mask=(pixel < AREA)[:, None])


@triton.jit
def _backward_kernel(
    frames,
    slots,
    offsets,
    output,
    gradient,
    products,
    sums,
    count,
    STACK: tl.constexpr,
    FRAME_CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    AREA: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    SIDE: tl.constexpr,
    STEP: tl.constexpr,
    CENTRE: tl.constexpr,
    TAPS: tl.constexpr,
    SPLITS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    split = tl.program_id(0)
    frame = tl.program_id(1)
    tap = tl.arange(0, TAPS)
    channel = tl.arange(0, CHANNELS)
    tiles: tl.constexpr = (AREA + PIXELS - 1) // PIXELS
    total = tl.zeros((TAPS, CHANNELS), tl.float32)
    sum_ = tl.zeros((CHANNELS,), tl.float32)
    for tile in range(split, count * tiles, SPLITS):
        image = tile // tiles
        pixel = (tile % tiles) * PIXELS + tl.arange(0, PIXELS)
        places = _places(
            offsets, image, pixel, tap, FRAME_CHANNELS, HEIGHT, WIDTH, AREA, OUT_WIDTH, PAD, SIDE, STEP
        )
        slot = tl.load(slots + image * STACK + frame)
        bytes_ = _centred_bytes(frames, slot, places, CENTRE, FRAME_CHANNELS * HEIGHT * WIDTH)
        where = (image.to(tl.int64) * AREA + pixel)[:, None] * CHANNELS + channel[None, :]
        real = (pixel < AREA)[:, None]
        out = tl.load(output + where, mask=real, other=0.0).to(tl.float32)
        slope = tl.where(out > 0, 1.0, out + 1.0)  # of ELU, from its value
        before = tl.load(gradient + where, mask=real, other=0.0).to(tl.float32) * slope
        # bf16, because gradients may be smaller than float16 can tell from zero.
        total = tl.dot(bytes_.to(tl.bfloat16), before.to(tl.bfloat16), total)
        sum_ += tl.sum(before, 0)
    goal = products + ((split * STACK + frame) * TAPS + tap[:, None]) * CHANNELS + channel[None, :]
    tl.store(goal, total)
    if frame == 0:
        tl.store(sums + split * CHANNELS + channel, sum_)
