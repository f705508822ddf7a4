"""How much arithmetic an update needs, and how fast this machine could do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import seconds
from ogspr.device import Device
from ogspr.training.graph import set_matrix_precision
from ogspr.training.options import Precision

_PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}  # of a matrix product that keeps all of a chip busy
_PRODUCTS = 10


@dataclass(frozen=True)
class Operations:
    """Floating-point operations; a multiplication and an addition count as two."""

    convolutions: int
    products: int  # of matrices

    @property
    def total(self) -> int:
        return self.convolutions + self.products

    def seconds(self, precision: Precision, speed: Callable[[Precision], float]) -> float:
        """At the speed that each kind could reach: in bf16, dense layers compute in tf32."""
        dense: Precision = "tf32" if precision == "bf16" else precision
        return self.convolutions / speed(precision) + self.products / speed(dense)


def floating_point_operations(update: Callable[[], None]) -> Operations:
    """Those of the matrix products and convolutions in an eager update."""
    with FlopCounterMode(display=False) as counter:
        update()
    counts = counter.get_flop_counts()["Global"]
    convolutions = sum(count for operator, count in counts.items() if "convolution" in str(operator))
    return Operations(convolutions, sum(counts.values()) - convolutions)


def operations_a_second(device: Device, precision: Precision) -> float:
    """What this machine reaches at its best, in the product of two large matrices.

    On a CPU, tf32 is fp32.
    """
    set_matrix_precision(precision)
    size = _PRODUCT_SIZE[device.kind]
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    factor = torch.randn(size, size, device=device.torch, dtype=kind)
    product = torch.empty_like(factor)
    multiply = partial(torch.mm, factor, factor, out=product)
    multiply()
    return 2.0 * size**3 / min(seconds(multiply, device) for _ in range(_PRODUCTS))
