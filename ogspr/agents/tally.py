"""Numbers about updates, kept on the device until somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ogspr.agents.optimisation import copy_state


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
