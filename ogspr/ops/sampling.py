"""Drawing in proportion to weights."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_proportional(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Indices with probability weight / sum: (N,), (B,) float64 in [0, 1) -> (B,) int64.

    In float64, because half a million priorities of size one leave float32 no digits for the next.
    An index of weight zero is never drawn.
    """
    cumulative = torch.cumsum(weights.double(), 0)
    return torch.searchsorted(cumulative, uniforms * cumulative[-1], right=True)
