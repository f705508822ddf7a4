"""Initial weights. Biases begin at zero everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

Initialise = Callable[[Tensor, Tensor], None]
"""Fills weight and bias of one layer, in place."""


def xavier(weight: Tensor, bias: Tensor) -> None:
    """Xavier-uniform with the gain of ReLU."""
    nn.init.xavier_uniform_(weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(bias)


def orthogonal(weight: Tensor, bias: Tensor) -> None:
    """Rows or columns, whichever are fewer, become orthogonal: of length 1, in convolutions of sqrt 2."""
    nn.init.orthogonal_(weight, 1.0 if weight.ndim == 2 else math.sqrt(2.0))
    nn.init.zeros_(bias)
