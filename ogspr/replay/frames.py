"""Where frames lie: on the learner's device, or in main memory that the GPU reads by itself."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from ogspr.errors import UserError
from ogspr.replay.shape import ReplayShape
from ogspr.types import Place


def allocate_frames(shape: ReplayShape, device: torch.device, place: Place) -> Tensor:
    """Room for all frames, (slots, C, H, W) uint8; for kernels on `device` it makes no difference where."""
    size = (shape.capacity, *shape.frame_shape)
    if place == "device":
        return torch.empty(size, dtype=torch.uint8, device=device)
    return _pinned(torch.empty(size, dtype=torch.uint8), device)


def _pinned(host: Tensor, device: torch.device) -> Tensor:
    """The same memory, locked and known to the GPU, as a tensor of `device`.

    Not torch's own pinned memory: that is handed out in powers of two, up to twice of what was asked for.
    """
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = int(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
    if error:
        raise UserError(
            f"main memory for replay could not be locked ({host.nbytes / 1e9:.1f} GB, CUDA error {error}); "
            "raise the limit (ulimit -l) or store fewer steps."
        )
    view = torch.as_tensor(_OnDevice(host), device=device)
    weakref.finalize(host, cudart.cudaHostUnregister, host.data_ptr())
    return view


class _OnDevice:
    """Says of locked host memory that the GPU can reach it at the same address."""

    def __init__(self, host: Tensor) -> None:
        self._host = host  # lives as long as the view

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": tuple(self._host.shape),
            "typestr": "|u1",
            "data": (self._host.data_ptr(), False),
            "version": 3,
        }
