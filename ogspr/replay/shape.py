"""The sizes that decide how a replay is laid out and how large it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ogspr.errors import UserError

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
