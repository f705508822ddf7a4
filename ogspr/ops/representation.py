"""Is a representation still alive? Numbers that tell before the return does."""

from __future__ import annotations

import torch
from torch import Tensor


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
