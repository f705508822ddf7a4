"""The device tensors are on: everything that differs between a CPU and a GPU, besides kernels.

Work on a GPU is queued on streams, and the host continues. On a CPU, streams and events do nothing: there,
everything is done when a call returns.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ogspr.errors import UserError
from ogspr.memory import free_host_bytes, keep_freed_memory

DType: TypeAlias = torch.dtype
_FLOAT = torch.float32


@dataclass(frozen=True)
class Device:
    """A CPU or a GPU."""

    torch: torch.device

    @property
    def is_gpu(self) -> bool:
        return self.torch.type == "cuda"

    @property
    def kind(self) -> Literal["cuda", "cpu"]:
        """cuda or cpu, as in options."""
        return "cuda" if self.is_gpu else "cpu"

    @property
    def gpu_name(self) -> str | None:
        return torch.cuda.get_device_name(self.torch) if self.is_gpu else None

    @property
    def allocated_bytes(self) -> int:
        """GPU memory that tensors take."""
        return torch.cuda.memory_allocated(self.torch) if self.is_gpu else 0

    @property
    def free_bytes(self) -> int:
        """Memory where tensors go: of the GPU, or main memory."""
        return torch.cuda.mem_get_info(self.torch)[0] if self.is_gpu else free_host_bytes()

    def synchronize(self) -> None:
        """Waits for everything that is queued."""
        if self.is_gpu:
            torch.cuda.synchronize(self.torch)

    def host_buffer(self, shape: int | Sequence[int], dtype: DType = _FLOAT) -> Tensor:
        """Zeros in main memory, which a GPU copies from and to without making the host wait."""
        return torch.zeros(shape, dtype=dtype, pin_memory=self.is_gpu)

    def stream(self) -> Callable[[], contextlib.AbstractContextManager[object]]:
        """A new queue; work inside `with stream():` goes there."""
        if not self.is_gpu:
            return contextlib.nullcontext
        return partial(torch.cuda.stream, torch.cuda.Stream(self.torch))  # type: ignore[no-untyped-call]

    def event(self) -> Event:
        return Event(torch.cuda.Event() if self.is_gpu else None)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Event:
    """A point in the current stream that the host can wait for."""

    cuda: torch.cuda.Event | None

    def record(self) -> None:
        if self.cuda is not None:
            self.cuda.record()

    def wait(self) -> None:
        """Returns at once if nothing was recorded."""
        if self.cuda is not None:
            self.cuda.synchronize()


CPU = Device(torch.device("cpu"))


def best_device() -> Device:
    """A GPU if there is one."""
    return Device(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def resolve_device(wanted: str, *, option: str) -> Device:
    """auto: a GPU if there is one. A UserError that names `option` if there is no such device."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(f"no CUDA device is usable here; omit {option}, or see `ogspr doctor`.")
    return best_device() if wanted == "auto" else Device(torch.device(wanted))


def prepared_device() -> Device:
    """The best one, configured as for training."""
    device = best_device()
    configure_threads(device)
    return device


def configure_threads(device: Device, threads: int | None = None) -> None:
    """What a CPU needs, for the whole process; `threads` of torch, by default one fewer than cores."""
    if device.is_gpu:
        return
    keep_freed_memory()
    # One core is left to the environments: threads that wait for each other cost more than they give.
    torch.set_num_threads(threads or max(1, usable_cores() - 1))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
