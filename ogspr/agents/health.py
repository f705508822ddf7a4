"""Whether representations are alive, told from those of the last update."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ogspr.ops.representation import dead_share, effective_rank


class Health:
    """Keeps the representations of the last update that counted, until somebody asks.

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

    def keep(self, features: Mapping[str, Tensor], skip: Tensor) -> None:
        """In place; not where `skip` (0-d) is 1."""
        for name, kept in self._features.items():
            kept.copy_(torch.where(skip > 0, kept, features[name]))

    def measures(self) -> dict[str, float]:
        """Effective rank and share of dead units of each; NaN before the first update. Waits."""
        return {
            f"{name}_{what}": float("nan") if features.isnan().any() else float(measure(features))
            for name, features in self._features.items()
            for what, measure in (("effective_rank", effective_rank), ("dead_share", dead_share))
        }

    def state_dict(self) -> dict[str, Tensor]:
        return self._features
