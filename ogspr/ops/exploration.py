"""Noise on actions as DrQ-v2 has it: its size by a schedule, its actions by a truncated normal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the schedule is part of a configuration, which a command line reads without torch
    from torch import Tensor

_MARGIN = 1e-6  # actions keep this much distance from -1 and 1


def linear_schedule(start: float, end: float, duration: int, step: int) -> float:
    """From `start` at step 0 on a straight line to `end` at step `duration`, where it stays."""
    share = min(step / duration, 1.0)
    return start + share * (end - start)


def truncated_normal(mean: Tensor, scale: Tensor, normals: Tensor, limit: float = math.inf) -> Tensor:
    """mean + clip(scale * epsilon, -limit, limit), clamped into (-1, 1): (N, A), (), (N, A) -> (N, A).

    The gradient passes the clamp as if it were not there: a mean beside the border is still told to come
    back when its noise reaches beyond.
    """
    noisy = mean + (scale * normals).clamp(-limit, limit)
    inside = noisy.clamp(-1.0 + _MARGIN, 1.0 - _MARGIN)
    return inside.detach() + (noisy - noisy.detach())
