"""What an update asks of a machine: arithmetic, and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ogspr.train.execution import Precision
from ogspr.train.graph import set_matrix_precision
from ogspr.train.learner import Learner

_PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}  # of a matrix product that keeps all of a chip busy
_PRODUCTS = 10


@dataclass(frozen=True)
class Memory:
    """Bytes on the device for one learner or several."""

    networks: int  # those that learn and those that targets come from
    optimisers: int
    replay: int
    working: int  # beside them, all the time: batches, activations, gradients, what a graph keeps
    momentary: int  # beside all that, at the start, when libraries try which of their kernels is fastest

    @staticmethod
    def of(learners: list[Learner], held: int, most: int) -> Memory:
        """`held`, `most`: see `held_memory` and `most_memory`."""
        networks = optimisers = replay = 0
        for learner in learners:
            for name, tensor in learner.agent.state_dict()["tensors"].items():
                if "optimiser" in name.partition(".")[0]:
                    optimisers += tensor.nbytes
                else:
                    networks += tensor.nbytes
            replay += _replay_bytes(learner)
        working = max(0, held - networks - optimisers - replay)
        return Memory(networks, optimisers, replay, working, momentary=most - held)


def held_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process cannot give back, after it has given back the rest; 0 on a CPU.

    Held, not used: what a graph works with is free for nobody else, though no tensor lives there.
    """
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)


def most_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process has held at most; 0 on a CPU."""
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
