"""Random numbers as declarations: a method says what it needs, and a driver draws all of it at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.ops.images import shift_offsets


class Uniform(NamedTuple):
    """Numbers in [0, 1)."""

    shape: tuple[int, ...]
    double: bool = False  # float64, for drawing from replay


class Normal(NamedTuple):
    """Standard normal numbers."""

    shape: tuple[int, ...]


class Shifts(NamedTuple):
    """Whole offsets 0 .. 2 pad for random shifts, (images, 2): down and right."""

    images: int
    pad: int


Kind: TypeAlias = Uniform | Normal | Shifts
Noise: TypeAlias = tuple[Any, ...]
"""A NamedTuple of the three; in what is drawn, each field is a tensor."""


def raw_noise(wanted: Sequence[Kind], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All the uniform (float64) and standard normal numbers that are wanted, on the generator's device."""
    uniforms = sum(_count(kind) for kind in wanted if not isinstance(kind, Normal))
    normals = sum(_count(kind) for kind in wanted if isinstance(kind, Normal))
    device = generator.device
    return (
        torch.rand(uniforms, generator=generator, device=device, dtype=torch.float64),
        torch.randn(normals, generator=generator, device=device),
    )


def arranged(uniforms: Tensor, normals: Tensor, wanted: Sequence[Kind]) -> list[Tensor]:
    """Raw numbers in the shapes that are wanted, in order."""
    fields, used, used_normals = [], 0, 0
    for kind in wanted:
        count = _count(kind)
        if isinstance(kind, Normal):
            fields.append(normals[used_normals : used_normals + count].view(kind.shape))
            used_normals += count
            continue
        part = uniforms[used : used + count]
        used += count
        if isinstance(kind, Shifts):
            fields.append(shift_offsets(part.view(kind.images, 2), kind.pad))
        else:
            fields.append((part if kind.double else part.float()).view(kind.shape))
    return fields


def host_noise(wanted: Sequence[Uniform | Normal], rng: np.random.Generator) -> list[npt.NDArray[np.float32]]:
    """What acting wants, drawn on the host, in order: the same on every device and in every mode."""
    return [
        rng.standard_normal(kind.shape, np.float32)
        if isinstance(kind, Normal)
        else rng.random(kind.shape, np.float32)
        for kind in wanted
    ]


def _count(kind: Kind) -> int:
    return 2 * kind.images if isinstance(kind, Shifts) else math.prod(kind.shape)
