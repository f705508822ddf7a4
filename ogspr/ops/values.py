"""Losses and targets of the actor and the critic that are not returns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ogspr.ops.reduction import Reduction


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
