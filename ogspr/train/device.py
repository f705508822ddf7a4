"""Which device tensors are on, and what makes a CPU a good one."""

from __future__ import annotations

import os

import torch

from ogspr.errors import UserError
from ogspr.memory import keep_freed_memory


def best_device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ready_device() -> torch.device:
    """The best one, made ready as training does."""
    device = best_device()
    use_well(device)
    return device


def usable_device(wanted: str, *, option: str) -> torch.device:
    """auto: a GPU if there is one. A UserError that names `option` where there is no such device."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(f"no CUDA device is usable here; leave {option} out, or see `ogspr doctor`.")
    return best_device() if wanted == "auto" else torch.device(wanted)


def use_well(device: torch.device, threads: int | None = None) -> None:
    """What a CPU needs, for the whole process; `threads` of torch, if not one less than cores."""
    if device.type != "cpu":
        return
    keep_freed_memory()
    # One core is left to the environments: threads that wait for each other cost more than they give.
    torch.set_num_threads(threads or max(1, usable_cores() - 1))


def usable_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))
