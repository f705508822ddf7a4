"""One step on its way from the host to the device: a single copy, without waiting for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.replay.shape import ReplayShape

_IN_FLIGHT = 64  # packets that may be under way before the host waits for the oldest
_WORD = 8


class Packet(NamedTuple):
    """What changed with one step, on the device."""

    frame: Tensor  # (C, H, W) uint8, for `slot`
    numbers: Tensor  # (action + reward + terminal flag,) for the slot `written`
    slot: Tensor  # (1,)
    written: Tensor  # (1,)
    age: Tensor  # (1,) of `slot`
    changed: Tensor  # (n,) slots whose reach changed
    reach: Tensor  # (n,)


@dataclass(frozen=True)
class PacketLayout:
    """Where each field lies in the bytes of a packet; integers first, so that all are aligned."""

    frame_shape: tuple[int, int, int]
    frame_bytes: int
    numbers: int
    changes: int  # the most slots whose reach one step can change

    @staticmethod
    def of(shape: ReplayShape) -> PacketLayout:
        return PacketLayout(
            shape.frame_shape,
            shape.frame_bytes,
            shape.numbers_a_step,
            shape.frame_stack + shape.longest_horizon,
        )

    @property
    def integers(self) -> int:
        """slot, written; then the slots that changed."""
        return 2 + self.changes

    @property
    def short_integers(self) -> int:
        """age; then the new reaches."""
        return 1 + self.changes

    @property
    def size(self) -> int:
        needed = self.integers * 8 + self.short_integers * 4 + self.numbers * 4 + self.frame_bytes
        return -(-needed // _WORD) * _WORD

    def unpack(self, data: Tensor) -> Packet:
        """Views of the bytes, as tensors of their types."""
        sizes = (self.integers * 8, self.short_integers * 4, self.numbers * 4, self.frame_bytes)
        used = data[: sum(sizes)]
        integers, shorts, numbers, frame = torch.split(used, list(sizes))
        long, short = integers.view(torch.int64), shorts.view(torch.int32)
        return Packet(
            frame=frame.view(self.frame_shape),
            numbers=numbers.view(torch.float32),
            slot=long[0:1],
            written=long[1:2],
            age=short[0:1],
            changed=long[2:],
            reach=short[1:],
        )


class PacketQueue:
    """Packs steps into host memory and copies them to the device, in order."""

    def __init__(self, layout: PacketLayout, device: torch.device) -> None:
        self._layout = layout
        self._on_gpu = device.type == "cuda"
        count = _IN_FLIGHT if self._on_gpu else 1
        self._host = torch.zeros(count, layout.size, dtype=torch.uint8, pin_memory=self._on_gpu)
        self._packed = [layout.unpack(row) for row in self._host]
        self._device = device
        self._copied: list[torch.cuda.Event | None] = [None] * count
        self._next = 0

    def send(
        self,
        slot: int,
        age: int,
        frame: npt.NDArray[np.uint8],
        written: int,
        numbers: npt.NDArray[Any],
        changes: dict[int, int],
    ) -> Packet:
        """The packet as tensors on the device; used at once, on the current stream."""
        index = self._next
        self._next = (index + 1) % len(self._packed)
        pending = self._copied[index]
        if pending is not None:
            pending.synchronize()
        packet = self._packed[index]
        packet.frame.numpy()[:] = frame
        packet.numbers.numpy()[:] = numbers
        packet.slot[0], packet.written[0], packet.age[0] = slot, written, age
        self._pack_changes(packet, changes)
        if not self._on_gpu:
            return packet
        sent = self._host[index].to(self._device, non_blocking=True)
        self._copied[index] = event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return self._layout.unpack(sent)

    def _pack_changes(self, packet: Packet, changes: dict[int, int]) -> None:
        """Fixed length: the last change is repeated, which writes the same number again."""
        slots, reaches = list(changes), list(changes.values())
        missing = self._layout.changes - len(slots)
        packet.changed.numpy()[:] = slots + slots[-1:] * missing
        packet.reach.numpy()[:] = reaches + reaches[-1:] * missing
