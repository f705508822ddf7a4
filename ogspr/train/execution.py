"""How a learner's tensor code may run: the choices, without torch, so that a command line can offer them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["eager", "compiled", "graph"]
Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class Execution:
    """How a learner's tensor code runs. The default is for a GPU, and is the fastest."""

    mode: Mode = "graph"
    """eager: as written. compiled: torch.compile. graph: compiled, and the whole update one CUDA graph."""
    precision: Precision = "bf16"
    """fp32; tf32: products with 10-bit mantissas; bf16: convolutions in bf16, others in tf32 (CPU: fp32)."""
    deterministic: bool = False
    """On a GPU: only kernels that sum in a fixed order."""


def default_execution(on_gpu: bool) -> Execution:
    """The fastest way; plain on a CPU."""
    return Execution() if on_gpu else Execution("eager", "fp32")
