"""What is recorded about updates, on the device until it is asked for: means, skipped updates, features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ogspr.device import Device


class RunningMeans:
    """Means of named 0-d tensors over the updates since the last flush."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = tuple(names)
        self._sums = torch.zeros(len(self._names), dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, values: Mapping[str, Tensor], skip: Tensor) -> None:
        """Adds one update's numbers, unless `skip` (0-d) is 1."""
        if set(values) != set(self._names):
            raise ValueError(f"expected numbers for {sorted(self._names)}, got {sorted(values)}")
        row = torch.stack([values[name].detach().double() for name in self._names])
        self._sums += torch.where(skip > 0, torch.zeros_like(row), row)
        self._count += 1.0 - skip

    def flush(self) -> dict[str, float]:
        """Returns the means and starts over; NaN if no update counted. Waits for the device."""
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


class RepresentationStats:
    """Keeps the representations of the last update that counted, until they are read.

    Args:
        sizes: Of each representation, by name.
        batch_size: How many there are in an update.
        device: Where they are.
    """

    def __init__(self, sizes: Mapping[str, int], batch_size: int, device: torch.device) -> None:
        nothing = float("nan")  # until the first update
        self._features = {
            name: torch.full((batch_size, size), nothing, device=device) for name, size in sizes.items()
        }

    @property
    def names(self) -> list[str]:
        """Of the measures."""
        return [f"{name}_{what}" for name in self._features for what in MEASURES]

    def keep(self, features: Mapping[str, Tensor], skip: Tensor) -> None:
        """Replaces them in place, unless `skip` (0-d) is 1."""
        for name, kept in self._features.items():
            kept.copy_(torch.where(skip > 0, kept, features[name]))

    def measures(self) -> dict[str, float]:
        """Effective rank and share of dead units; NaN before the first update. Waits for the device."""
        return {
            f"{name}_{what}": float("nan") if features.isnan().any() else float(measure(features))
            for name, features in self._features.items()
            for what, measure in MEASURES.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        return self._features


def has_nonfinite(numbers: tuple[Tensor, ...]) -> Tensor:
    """1 if one of the 0-d numbers is infinite or NaN, otherwise 0."""
    return (~torch.isfinite(torch.stack(numbers)).all()).float()


@dataclass(frozen=True)
class FailedUpdate:
    """The last update that was skipped because one of its numbers was non-finite."""

    in_a_row: int
    total: int
    numbers: dict[str, float]  # losses and gradient norms
    starts: dict[str, list[int]]  # where in replay the windows of each batch begin

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in self.numbers.items())
        return (
            f"{self.total} updates were skipped because a loss or gradient was non-finite "
            f"({self.in_a_row} in a row): {numbers}"
        )


class SkippedUpdates:
    """Remembers the last skipped update without making any other update wait.

    The host reads a copy that arrives when it arrives: a failure is noticed an update late, not never.
    """

    def __init__(self, names: Sequence[str], batches: Mapping[str, int], device: torch.device) -> None:
        self._names = tuple(names)
        self._numbers = torch.zeros(len(self._names), device=device)
        self._starts = {
            name: torch.zeros(size, dtype=torch.int64, device=device) for name, size in batches.items()
        }
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)  # in a row, in total
        # The host's copy.
        self.arrived = Device(device).host_buffer(2, torch.int64)

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
    def total(self) -> int:
        """All failures, as far as the host knows."""
        return int(self.arrived[1])

    def report(self) -> FailedUpdate:
        """Waits for the device."""
        in_a_row, total = self._counts.tolist()
        numbers = dict(zip(self._names, self._numbers.tolist(), strict=True))
        starts = {name: places.tolist() for name, places in self._starts.items()}
        return FailedUpdate(in_a_row, total, numbers, starts)

    def forget_row(self) -> None:
        """The next failure is the first of a row."""
        self._counts[0] = 0
        self.update_host()

    def state_dict(self) -> dict[str, Tensor]:
        starts = {f"starts.{name}": places for name, places in self._starts.items()}
        return {"numbers": self._numbers, "counts": self._counts, **starts}

    def update_host(self) -> None:
        """Brings the host's copy up to date at once."""
        self.arrived.copy_(self._counts)


# --- is a representation still alive? numbers that tell before the return does -------------------------


def effective_rank(features: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values of the centred batch: (B, D) -> ().

    Between 1 (one direction) and min(B - 1, D). Centred, so that a constant does not count as a
    direction; 0 where nothing varies at all. (Roy & Vetterli, "The effective rank", 2007.)
    """
    # The first row is taken off before the mean, which of equal numbers is not exactly that number.
    features = features.float() - features[0].float()
    singular = torch.linalg.svdvals(features - features.mean(0))
    total = singular.sum()
    share = singular / total.clamp(min=torch.finfo(singular.dtype).tiny)
    return torch.where(total > 0, torch.exp(torch.special.entr(share).sum()), torch.zeros_like(total))


def dead_share(features: Tensor, threshold: float = 0.01) -> Tensor:
    """The share of units that hardly react to the input: (B, D) -> ().

    A unit is dead when its standard deviation over the batch is at most `threshold` times the root
    mean square of all units.
    """
    features = features.float()
    deviation = features.std(0, unbiased=False)
    return (deviation <= threshold * features.square().mean().sqrt()).float().mean()


MEASURES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "effective_rank": effective_rank,
    "dead_share": dead_share,
}
"""What is measured of each representation."""
