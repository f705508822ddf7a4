"""What an update asks of a machine: arithmetic, and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ogspr.train.execution import Precision
from ogspr.train.graph import set_matrix_precision
from ogspr.train.learner import Learner

_PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}  # of a matrix product that keeps all of a chip busy
_PRODUCTS = 10
_SHARED_POOL = (0, 0)  # torch's number of the memory that belongs to no graph


@dataclass(frozen=True)
class Memory:
    """Bytes on the device for one learner or several."""

    networks: int  # those that learn and those that targets come from
    optimisers: int
    replay: int
    working: int  # beside them, all the time: batches, activations, gradients, what a graph keeps
    momentary: int  # taken from the device beside all that, at most: libraries try kernels at the start

    @staticmethod
    def of(learners: list[Learner], held: int, most: int) -> Memory:
        """`held`, `most`: what they add to `held_memory` and `most_memory`; 0 where there is no GPU."""
        networks = optimisers = replay = 0
        for learner in learners:
            for name, tensor in learner.agent.state_dict()["tensors"].items():
                if "optimiser" in name.partition(".")[0]:
                    optimisers += tensor.nbytes
                else:
                    networks += tensor.nbytes
            replay += _replay_bytes(learner)
        working = held - networks - optimisers - replay if held else 0
        return Memory(networks, optimisers, replay, working, momentary=most - held)


def held_memory(device: torch.device) -> int:
    """Bytes of a GPU that tensors and graphs of this process hold; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    index = torch.cuda.current_device() if device.index is None else device.index
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return held_bytes(segment for segment in segments if segment["device"] == index)


def held_bytes(segments: Iterable[Mapping[str, Any]]) -> int:
    """Of torch's pieces of memory: those of a graph's own pool whole, of others what tensors live in.

    A graph's pool is free for nobody else, though no tensor lives there while the graph does not run. What is
    free elsewhere goes to the next who asks, and is no part of what anybody holds, even where torch cannot
    give it back because a small tensor beside it lives on.
    """
    held = 0
    for segment in segments:
        shared = tuple(segment["segment_pool_id"]) == _SHARED_POOL
        held += segment["allocated_size" if shared else "total_size"]
    return held


def most_memory(device: torch.device) -> int:
    """Bytes of a GPU that torch had taken at most since `release`, used or not; 0 on a CPU."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0


@dataclass(frozen=True)
class Operations:
    """On floating-point numbers; to multiply and to add count as two."""

    convolutions: int
    products: int  # of matrices

    @property
    def total(self) -> int:
        return self.convolutions + self.products

    def seconds(self, precision: Precision, speed: Callable[[Precision], float]) -> float:
        """At the speed that each kind could have: in bf16, dense layers compute more precisely than that."""
        dense: Precision = "tf32" if precision == "bf16" else precision
        return self.convolutions / speed(precision) + self.products / speed(dense)


def floating_point_operations(update: Callable[[], None]) -> Operations:
    """Of the matrix products and convolutions in an eager update."""
    with FlopCounterMode(display=False) as counter:
        update()
    counts = counter.get_flop_counts()["Global"]
    convolutions = sum(count for operator, count in counts.items() if "convolution" in str(operator))
    return Operations(convolutions, sum(counts.values()) - convolutions)


def operations_a_second(device: torch.device, precision: Precision) -> float:
    """That this machine reaches in its favourite task: the product of two large matrices.

    On a CPU, tf32 is fp32.
    """
    set_matrix_precision(precision)
    size = _PRODUCT_SIZE[device.type]
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    factor = torch.randn(size, size, device=device, dtype=kind)
    product = torch.empty_like(factor)

    def multiply() -> None:
        torch.mm(factor, factor, out=product)

    multiply()
    seconds = min(_seconds(multiply, device) for _ in range(_PRODUCTS))
    return 2.0 * size**3 / seconds


def _replay_bytes(learner: Learner) -> int:
    """On the device: frames in main memory do not count."""
    replay = learner.replay
    tensors = [replay.numbers, replay.age, replay.reach, replay.priority]
    tensors += [replay.frames] if learner.place == "device" else []
    return sum(tensor.nbytes for tensor in tensors)


def release(device: torch.device) -> None:
    """What was measured before leaves no memory behind, and no peak."""
    gc.collect()
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()  # torch keeps one for each stream that ever multiplied
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start
