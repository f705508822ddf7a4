"""Numbers about updates, kept on the device until somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ogspr.agents.optimisation import copy_state


def any_not_finite(numbers: tuple[Tensor, ...]) -> Tensor:
    """1 where one of the 0-d numbers is infinite or NaN, else 0."""
    return (~torch.isfinite(torch.stack(numbers)).all()).float()


class Tally:
    """Means of named 0-d tensors over the updates since the last flush."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = tuple(names)
        self._sums = torch.zeros(len(self._names), dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, values: Mapping[str, Tensor], skip: Tensor) -> None:
        """One update's numbers; they do not count where `skip` (0-d) is 1."""
        if set(values) != set(self._names):
            raise ValueError(f"expected numbers for {sorted(self._names)}, got {sorted(values)}")
        row = torch.stack([values[name].detach().double() for name in self._names])
        self._sums += torch.where(skip > 0, torch.zeros_like(row), row)
        self._count += 1.0 - skip

    def flush(self) -> dict[str, float]:
        """The means, and a new start; NaN where no update counted. Waits for the device."""
        count = float(self._count)
        means = {
            name: value / count if count else float("nan")
            for name, value in zip(self._names, self._sums.tolist(), strict=True)
        }
        self._sums.zero_()
        self._count.zero_()
        return means

    def state_dict(self) -> dict[str, Tensor]:
        return {"sums": self._sums, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        copy_state(self.state_dict(), state)


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
        self._arrived = torch.zeros(2, dtype=torch.int64, pin_memory=device.type == "cuda")

    def observe(self, skip: Tensor, numbers: Mapping[str, Tensor], starts: Mapping[str, Tensor]) -> None:
        failed = skip > 0
        row = torch.stack([numbers[name].detach().float() for name in self._names])
        self._numbers.copy_(torch.where(failed, row, self._numbers))
        for name, kept in self._starts.items():
            kept.copy_(torch.where(failed, starts[name], kept))
        self._counts += failed
        self._counts[0] *= failed  # one success ends a row
        self._arrived.copy_(self._counts, non_blocking=True)

    @property
    def in_a_row(self) -> int:
        """Failures in a row, as far as the host has heard."""
        return int(self._arrived[0])

    @property
    def total(self) -> int:
        return int(self._arrived[1])

    def report(self) -> FailedUpdate:
        """Waits for the device."""
        in_a_row, total = self._counts.tolist()
        numbers = dict(zip(self._names, self._numbers.tolist(), strict=True))
        starts = {name: places.tolist() for name, places in self._starts.items()}
        return FailedUpdate(in_a_row, total, numbers, starts)

    def state_dict(self) -> dict[str, Tensor]:
        starts = {f"starts.{name}": places for name, places in self._starts.items()}
        return {"numbers": self._numbers, "counts": self._counts, **starts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        copy_state(self.state_dict(), state)
        self.tell_host()

    def tell_host(self) -> None:
        """Brings the host's copy up to date at once."""
        self._arrived.copy_(self._counts)
