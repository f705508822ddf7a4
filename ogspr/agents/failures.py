"""Updates that were left out because a number was not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ogspr.agents.optimisation import copy_state


def any_not_finite(numbers: tuple[Tensor, ...]) -> Tensor:
    """1 where one of the 0-d numbers is infinite or NaN, else 0."""
    return (~torch.isfinite(torch.stack(numbers)).all()).float()


@dataclass(frozen=True)
class FailedUpdate:
    """The last update that was not applied because one of its numbers was not finite."""

    in_a_row: int
    total: int
    numbers: dict[str, float]  # losses and gradient norms
    starts: dict[str, list[int]]  # where in replay the windows of each batch begin

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in self.numbers.items())
        return (
            f"{self.total} updates were left out because a loss or gradient was not finite "
            f"({self.in_a_row} in a row): {numbers}"
        )


class FailureWatch:
    """Remembers the last failed update without making any other update wait.

    The host reads a copy that arrives when it arrives: a failure is noticed an update late, not never.
    """

    def __init__(self, names: Sequence[str], batches: Mapping[str, int], device: torch.device) -> None:
        self._names = tuple(names)
        self._numbers = torch.zeros(len(self._names), device=device)
        self._starts = {
            name: torch.zeros(size, dtype=torch.int64, device=device) for name, size in batches.items()
        }
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)  # in a row, in all
        # What the host has heard.
        self.arrived = torch.zeros(2, dtype=torch.int64, pin_memory=device.type == "cuda")

    def observe(self, skip: Tensor, numbers: Mapping[str, Tensor], starts: Mapping[str, Tensor]) -> None:
        failed = skip > 0
        row = torch.stack([numbers[name].detach().float() for name in self._names])
        self._numbers.copy_(torch.where(failed, row, self._numbers))
        for name, kept in self._starts.items():
            kept.copy_(torch.where(failed, starts[name], kept))
        self._counts += failed
        self._counts[0] *= failed  # one success ends a row
        self.arrived.copy_(self._counts, non_blocking=True)

    @property
    def in_a_row(self) -> int:
        """Failures in a row, as far as the host has heard."""
        return int(self.arrived[0])

    @property
    def total(self) -> int:
        return int(self.arrived[1])

    def report(self) -> FailedUpdate:
        """Waits for the device."""
        in_a_row, total = self._counts.tolist()
        numbers = dict(zip(self._names, self._numbers.tolist(), strict=True))
        starts = {name: places.tolist() for name, places in self._starts.items()}
        return FailedUpdate(in_a_row, total, numbers, starts)

    def forget_row(self) -> None:
        """The next failure is the first in a row."""
        self._counts[0] = 0
        self.tell_host()

    def state_dict(self) -> dict[str, Tensor]:
        starts = {f"starts.{name}": places for name, places in self._starts.items()}
        return {"numbers": self._numbers, "counts": self._counts, **starts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        copy_state(self.state_dict(), state)
        self.tell_host()

    def tell_host(self) -> None:
        """Brings the host's copy up to date at once."""
        self.arrived.copy_(self._counts)
