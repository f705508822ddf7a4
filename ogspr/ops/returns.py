"""Returns over short windows, and the target of the long-term values."""

from __future__ import annotations

import torch
from torch import Tensor


def survival(terminated: Tensor) -> Tensor:
    """(B, n) flags of terminal transitions -> (B, n + 1): 1 while no earlier transition was terminal."""
    going_on = torch.cumprod(1.0 - terminated, dim=1)
    return torch.cat((torch.ones_like(going_on[:, :1]), going_on), dim=1)


def n_step_return(rewards: Tensor, alive: Tensor, discount: float) -> Tensor:
    """R_t = sum_i gamma^i r_{t+i} (eq. 6), ended by a terminal: (B, n), (B, n + 1) -> (B,)."""
    steps = rewards.shape[1]
    discounts = discount ** torch.arange(steps, dtype=rewards.dtype, device=rewards.device)
    return (rewards * alive[:, :steps] * discounts).sum(1)


def value_target(
    short_return: Tensor,
    next_values: Tensor,
    alive: Tensor,
    discount: float,
    scale: Tensor | float = 1.0,
    next_scale: Tensor | float = 1.0,
) -> Tensor:
    """y = R_t + gamma^n min_j Q'_j (eq. 3) in units of `scale`: (B,), (2, B), (B, n + 1) -> (B,).

    Q' was learned in units of `next_scale`. Both are 1 unless rewards are scaled.
    """
    steps = alive.shape[1] - 1
    bootstrap = alive[:, -1] * discount**steps * next_values.amin(0) * next_scale
    return (short_return + bootstrap) / scale
