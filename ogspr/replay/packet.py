"""One step on its way from the host to the device: a single copy, without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.device import Device
from ogspr.replay.storage import ReplayShape

_IN_FLIGHT = 2  # packets that may be under way before the host waits for the oldest
_WORD = 8

Procedure = Callable[[], None]


class Packet(NamedTuple):
    """What changed with one step, on the device."""

    frame: Tensor  # (C, H, W) uint8, for `slot`
    numbers: Tensor  # (action + reward + terminal flag,) for the slot `written`
    slot: Tensor  # (1,)
    written: Tensor  # (1,)
    total: Tensor  # (1,) observations stored so far, this one included
    age: Tensor  # (1,) of `slot`
    changed: Tensor  # (n,) slots whose reach changed
    reach: Tensor  # (n,)


class HostPacket(NamedTuple):
    """The same on the host, to be filled in."""

    frame: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.float32]
    slot: npt.NDArray[np.int64]
    written: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]
    age: npt.NDArray[np.int32]
    changed: npt.NDArray[np.int64]
    reach: npt.NDArray[np.int32]


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
        """slot, written, count; then the slots that changed."""
        return 3 + self.changes

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
            total=long[2:3],
            age=short[0:1],
            changed=long[3:],
            reach=short[1:],
        )


class PacketQueue:
    """Packs steps into host memory and stores them on the device, in order.

    Args:
        layout: Of a packet.
        device: Where packets go.
        store: Puts a packet in its places; twice has the same effect as once.
        record: Makes a procedure over fixed tensors fast.
    """

    def __init__(
        self,
        layout: PacketLayout,
        device: Device,
        store: Callable[[Packet], None],
        record: Callable[[Procedure], Procedure],
    ) -> None:
        count = _IN_FLIGHT if device.is_gpu else 1
        self._envelopes = [_Envelope(layout, device, store, record) for _ in range(count)]
        self._next = 0

    def send(
        self,
        slot: int,
        age: int,
        frame: npt.NDArray[np.uint8],
        written: int,
        total: int,
        numbers: npt.NDArray[Any],
        changes: dict[int, int],
    ) -> None:
        """Stores it on the current stream, which is always the same."""
        envelope = self._envelopes[self._next]
        self._next = (self._next + 1) % len(self._envelopes)
        envelope.wait_until_empty()
        fields = envelope.fields
        fields.frame[:] = frame
        fields.numbers[:] = numbers
        fields.slot[0], fields.written[0], fields.total[0], fields.age[0] = slot, written, total, age
        # Fixed length: the last change is repeated, which writes the same number again.
        slots, reaches = list(changes), list(changes.values())
        missing = len(fields.changed) - len(slots)
        fields.changed[:] = slots + slots[-1:] * missing
        fields.reach[:] = reaches + reaches[-1:] * missing
        envelope.deliver()


class _Envelope:
    """Bytes of one packet on the host and, where that is elsewhere, on the device."""

    def __init__(
        self,
        layout: PacketLayout,
        device: Device,
        store: Callable[[Packet], None],
        record: Callable[[Procedure], Procedure],
    ) -> None:
        self._host = device.host_buffer(layout.size, torch.uint8)
        self._there = torch.zeros_like(self._host, device=device.torch) if device.is_gpu else self._host
        self._packet = layout.unpack(self._there)
        self._store = store
        self._go = record(self._travel)
        self._left = device.event()
        self.fields = HostPacket(*(field.numpy() for field in layout.unpack(self._host)))

    def wait_until_empty(self) -> None:
        self._left.wait()

    def deliver(self) -> None:
        self._go()
        self._left.record()

    def _travel(self) -> None:
        if self._there is not self._host:
            self._there.copy_(self._host, non_blocking=True)
        self._store(self._packet)
