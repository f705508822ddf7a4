"""Values: n-step returns, losses of them, and the two-hot code of numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ogspr.types import Reduction

if TYPE_CHECKING:
    from torch import Tensor


# --- returns and targets -------------------------------------------------------------------------------


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


# --- losses, and priorities ----------------------------------------------------------------------------


def value_loss(values: Tensor, target: Tensor, reduction: Reduction) -> Tensor:
    """Huber(Q1, y) + Huber(Q2, y) (eq. 4) or their mean, each averaged over the batch: (2, B), (B,) -> ()."""
    errors = F.huber_loss(values, target.expand_as(values), reduction="none").mean(1)
    return errors.sum() if reduction == "sum" else errors.mean()


def lap_priority(values: Tensor, target: Tensor, exponent: float, minimum: float) -> Tensor:
    """max(max_j |Q_j - y|, minimum)^exponent: (2, B), (B,) -> (B,)."""
    return (values - target).abs().amax(0).clamp(min=minimum) ** exponent


def policy_loss(values: Tensor, pre_activation: Tensor, pre_activation_weight: float) -> Tensor:
    """-mean (Q1 + Q2) / 2 + lambda * mean square of the pre-activation (eq. 5): (2, B), (B, A) -> ()."""
    return -values.mean() + pre_activation_weight * pre_activation.square().mean()


def squared_error(predicted: Tensor, target: Tensor, alive: Tensor, reduction: Reduction) -> Tensor:
    """Squared error, averaged over the batch; over the other dimensions averaged or added.

    `alive` (B,) leaves out what lies beyond a terminal: it counts as no error.
    """
    error = (predicted - target).square().flatten(1) * alive[:, None]
    # One sum over everything: a GPU is not kept busy by one sum a sample.
    return error.sum() / (error.numel() if reduction == "mean" else len(error))


def clipped_noise(normals: Tensor, scale: float, limit: float) -> Tensor:
    """clip(epsilon, -c, c) with epsilon ~ N(0, scale^2) (eq. 2), from standard normals."""
    return (normals * scale).clamp(-limit, limit)


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel noise from numbers in [0, 1)."""
    tiny = torch.finfo(uniforms.dtype).tiny
    return -torch.log(-torch.log(uniforms.clamp(min=tiny, max=1.0 - torch.finfo(uniforms.dtype).eps)))


# --- noise of DrQ-v2, a truncated normal ---------------------------------------------------------------


_MARGIN = 1e-6  # actions keep this much distance from -1 and 1


def truncated_normal(mean: Tensor, scale: Tensor, normals: Tensor, limit: float = math.inf) -> Tensor:
    """mean + clip(scale * epsilon, -limit, limit), clamped into (-1, 1): (N, A), (), (N, A) -> (N, A).

    The gradient passes the clamp as if it were not there: a mean near the border is still pulled
    back when its noise reaches beyond.
    """
    noisy = mean + (scale * normals).clamp(-limit, limit)
    inside = noisy.clamp(-1.0 + _MARGIN, 1.0 - _MARGIN)
    return inside.detach() + (noisy - noisy.detach())


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
