"""How much room a replay needs, and where there is that much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ogspr.errors import UserError
from ogspr.memory import free_host_bytes
from ogspr.replay.shape import ReplayShape
from ogspr.types import Place

# What the networks, the batches and the graph of one learner need beside its replay.
DEVICE_RESERVE_BYTES = 4 * 2**30
HOST_RESERVE_BYTES = 1 * 2**30


@dataclass(frozen=True)
class Room:
    """Memory that replays may take."""

    place: Place
    name: str  # in a user's words: on a CPU, what is beside the networks is main memory
    bytes: int


@dataclass(frozen=True)
class StoragePlan:
    """Where the frames of a replay go: beside the networks, or `pinned` in main memory, read by the GPU."""

    place: Place
    shape: ReplayShape
    learners: int

    def __str__(self) -> str:
        where = "in main memory, read by the GPU" if self.place == "pinned" else "beside the networks"
        size = gigabytes(self.learners * self.shape.bytes)
        count = f"{self.learners} x " if self.learners > 1 else ""
        steps = f"{count}{self.shape.capacity} steps of {self.shape.bytes_a_step} bytes"
        return f"replay: {steps} = {size} {where}"


def plan_storage(
    shape: ReplayShape, device: torch.device, learners: int = 1, *, place: Place | None = None
) -> StoragePlan:
    """The best place that is large enough; a UserError with the numbers where there is none.

    Args:
        place: Insist on this place instead of choosing.
    """
    main_memory = free_host_bytes() - HOST_RESERVE_BYTES
    if device.type != "cuda":
        if place == "pinned":
            raise UserError("replay in pinned memory needs a CUDA device; leave the place out.")
        return choose_place(shape, learners, [Room("device", "main memory", main_memory)])
    gpu_memory = torch.cuda.mem_get_info(device)[0] - learners * DEVICE_RESERVE_BYTES
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
