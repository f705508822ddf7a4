"""How much room a replay needs, where there is that much, and the memory itself."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ogspr.device import Device
from ogspr.errors import UserError
from ogspr.memory import free_host_bytes
from ogspr.types import Place

FLOAT_BYTES = 4
INT_BYTES = 4


@dataclass(frozen=True)
class ReplayShape:
    """What one replay holds. An episode of T steps takes T + 1 slots: its last observation has one too."""

    capacity: int  # slots
    frame_shape: tuple[int, int, int]
    frame_stack: int
    action_size: int
    longest_horizon: int  # steps in the longest window that will be drawn

    def __post_init__(self) -> None:
        least = self.frame_stack + self.longest_horizon + 1
        if self.capacity < least:
            raise UserError(f"replay needs room for at least {least} steps, got {self.capacity}; store more.")

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.frame_shape)

    @property
    def numbers_a_step(self) -> int:
        """Action, reward, terminal flag."""
        return self.action_size + 2

    @property
    def bytes_a_step(self) -> int:
        """The frame, the numbers, the priority, and the step's age and reach here and on the host."""
        bookkeeping = FLOAT_BYTES + 2 * 2 * INT_BYTES
        return self.frame_bytes + self.numbers_a_step * FLOAT_BYTES + bookkeeping

    @property
    def bytes(self) -> int:
        return self.capacity * self.bytes_a_step


# --- where it goes -------------------------------------------------------------------------------------


# What the networks, the batches and the graph of one learner need besides its replay.
DEVICE_RESERVE_BYTES = 4 * 2**30
HOST_RESERVE_BYTES = 1 * 2**30


@dataclass(frozen=True)
class Room:
    """Memory that replays may take."""

    place: Place
    name: str  # in a user's words: on a CPU, what is next to the networks is main memory
    bytes: int


@dataclass(frozen=True)
class StoragePlan:
    """Where the frames of a replay go: next to the networks, or `pinned` in main memory, read by the GPU."""

    place: Place
    shape: ReplayShape
    learners: int

    def __str__(self) -> str:
        where = "in main memory, read by the GPU" if self.place == "pinned" else "next to the networks"
        size = gigabytes(self.learners * self.shape.bytes)
        count = f"{self.learners} x " if self.learners > 1 else ""
        steps = f"{count}{self.shape.capacity} steps of {self.shape.bytes_a_step} bytes"
        return f"replay: {steps} = {size} {where}"


def plan_storage(
    shape: ReplayShape, device: Device, learners: int = 1, *, place: Place | None = None
) -> StoragePlan:
    """The best place that is large enough; a UserError with the numbers where there is none.

    Args:
        place: Insist on this place instead of choosing.
    """
    main_memory = free_host_bytes() - HOST_RESERVE_BYTES
    if not device.is_gpu:
        if place == "pinned":
            raise UserError("replay in pinned memory needs a CUDA device; omit --replay.place.")
        return choose_place(shape, learners, [Room("device", "main memory", main_memory)])
    gpu_memory = device.free_bytes - learners * DEVICE_RESERVE_BYTES
    rooms = [Room("device", "GPU memory", gpu_memory), Room("pinned", "main memory", main_memory)]
    return choose_place(shape, learners, [room for room in rooms if place in (None, room.place)])


def choose_place(shape: ReplayShape, learners: int, rooms: Sequence[Room]) -> StoragePlan:
    """The first of `rooms` that all replays fit into."""
    needed = learners * shape.bytes
    for room in rooms:
        if needed <= room.bytes:
            return StoragePlan(room.place, shape, learners)
    best = max(0, *(room.bytes for room in rooms))
    have = ", ".join(f"{room.name} {gigabytes(max(0, room.bytes))}" for room in rooms)
    raise UserError(
        f"replay does not fit: {learners} x {shape.capacity} steps need {gigabytes(needed)}, free: {have}; "
        f"store at most {best // (learners * shape.bytes_a_step)} steps each (--replay.capacity), "
        f"{'train fewer seeds at a time, ' if learners > 1 else ''}or free memory."
    )


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


# --- the frames themselves -----------------------------------------------------------------------------


def allocate_frames(shape: ReplayShape, device: torch.device, place: Place) -> Tensor:
    """Room for all frames, (slots, C, H, W) uint8; for kernels on `device` it makes no difference where."""
    size = (shape.capacity, *shape.frame_shape)
    if place == "device":
        return torch.empty(size, dtype=torch.uint8, device=device)
    return _pinned(torch.empty(size, dtype=torch.uint8), device)


def _pinned(host: Tensor, device: torch.device) -> Tensor:
    """The same memory, locked and known to the GPU, as a tensor of `device`.

    Not torch's own pinned memory: that is handed out in powers of two, up to twice of what was asked for.
    """
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = int(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
    if error:
        raise UserError(
            f"main memory for replay could not be locked ({host.nbytes / 1e9:.1f} GB, CUDA error {error}); "
            "raise the limit (ulimit -l) or store fewer steps."
        )
    view = torch.as_tensor(_OnDevice(host), device=device)
    weakref.finalize(host, cudart.cudaHostUnregister, host.data_ptr())
    return view


class _OnDevice:
    """Says of locked host memory that the GPU can reach it at the same address."""

    def __init__(self, host: Tensor) -> None:
        self._host = host  # lives as long as the view

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": tuple(self._host.shape),
            "typestr": "|u1",
            "data": (self._host.data_ptr(), False),
            "version": 3,
        }
