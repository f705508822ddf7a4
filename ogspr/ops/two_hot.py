"""The two-hot code of a number on bins that are dense around zero (eq. 6)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp|x| - 1)."""
    return torch.sign(x) * torch.expm1(torch.abs(x))


def symexp_bins(count: int, limit: float) -> Tensor:
    """The `count` bin values: symexp of an even grid on [-limit, limit], exactly antisymmetric."""
    if count < 3 or count % 2 == 0:
        raise ValueError(f"expected an odd number of bins, at least 3, so that zero is one; got {count}")
    upper = symexp(torch.linspace(0.0, limit, count // 2 + 1, dtype=torch.float64))
    return torch.cat((-upper[1:].flip(0), upper)).float()


def two_hot_weights(values: Tensor, bins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The index of the bin above each value, its share, and the share of the bin before it: (B,) each.

    Values beyond the bins count as the outermost bin.
    """
    values = values.contiguous().clamp(bins[0], bins[-1])
    upper = torch.searchsorted(bins, values, right=True).clamp(1, len(bins) - 1)
    below, above = bins[upper - 1], bins[upper]
    width = above - below
    return upper, (values - below) / width, (above - values) / width


def two_hot(values: Tensor, bins: Tensor) -> Tensor:
    """(B,) -> (B, bins): at most two neighbours share the weight 1 and average to the value."""
    upper, upper_share, lower_share = two_hot_weights(values, bins)
    code = torch.zeros(len(values), len(bins), dtype=upper_share.dtype, device=values.device)
    code.scatter_(1, upper[:, None], upper_share[:, None])
    return code.scatter_(1, upper[:, None] - 1, lower_share[:, None])


def two_hot_cross_entropy(logits: Tensor, values: Tensor, bins: Tensor) -> Tensor:
    """CE(q(z), TwoHot(R)), averaged over the batch: (B, bins), (B,) -> ()."""
    upper, upper_share, lower_share = two_hot_weights(values, bins)
    log_q = F.log_softmax(logits, dim=1)
    at_upper = log_q.gather(1, upper[:, None])[:, 0]
    at_lower = log_q.gather(1, upper[:, None] - 1)[:, 0]
    return -(upper_share * at_upper + lower_share * at_lower).mean()
