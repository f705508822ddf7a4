"""What a user may ask a benchmark for; without torch, so that the command line can offer it at once."""

from __future__ import annotations

from dataclasses import dataclass

from ogspr.train.execution import Mode, Precision


@dataclass(frozen=True)
class UpdateBench:
    """What is measured."""

    preset: str = "ogspr"
    """What is updated: ogspr, one of its variants, mrq or drqv2."""
    suite: str = "dmc"
    """The suite whose sizes and weights it has: dmc or atari100k."""
    modes: tuple[Mode, ...] = ()
    """eager, compiled, graph; if left out, all that this machine can do."""
    precisions: tuple[Precision, ...] = ()
    """fp32, tf32, bf16; if left out, all that this machine can do."""
    learners: tuple[int, ...] = ()
    """Numbers of learners in one process, others than the first in the last mode and precision; if left out,
    1 to 5, on a CPU 1 and 2."""
    batch_sizes: tuple[int, ...] = ()
    """Windows in a batch, others than the first in the last mode and precision; if left out, the preset's,
    on a CPU 16."""
    capacities: tuple[int, ...] = ()
    """Steps in each replay, others than the first in the last mode and precision; if left out, 100 000, on a
    CPU 2000."""
    updates: int | None = None
    """Updates timed in one round; if left out, 100, on a CPU 3."""
    rounds: int = 3
    """Rounds; the median counts."""


@dataclass(frozen=True)
class UsualUpdate:
    """An update as it runs in training."""

    preset: str = "ogspr"
    """What is updated: ogspr, one of its variants, mrq or drqv2."""
    suite: str = "dmc"
    """The suite whose sizes and weights it has: dmc or atari100k."""
    learners: int = 1
    """Learners in one process."""
    batch_size: int | None = None
    """Windows in a batch; if left out, the preset's, on a CPU 16."""


@dataclass(frozen=True)
class KernelBench(UsualUpdate):
    """What is traced."""

    updates: int | None = None
    """Updates that are traced; if left out, 20, on a CPU 2."""


@dataclass(frozen=True)
class SharingBench(UsualUpdate):
    """What is measured."""

    drawers: tuple[int, ...] = (1, 10)
    """Numbers of processes that draw."""
    seconds: float = 5.0
    """Of each measurement."""


@dataclass(frozen=True)
class TrainBench:
    """What is measured."""

    methods: tuple[str, ...] = ("ogspr",)
    """The presets: `ogspr anonmethod mrq drqv2` are those of the paper's Table 5 that can be trained here."""
    seeds: tuple[int, ...] = ()
    """Numbers of seeds in one process; if left out, 1, 2, 3 and 5, on a CPU 1."""
    steps: int | None = None
    """Agent steps that are timed; if left out, as many as from one evaluation to the next, so that there is
    one among them. For mrq a multiple of 250: its encoder learns in bursts."""
    warm_up: int = 5_000
    """Agent steps before, most of them with random actions: compilation, first episodes. If the preset
    evaluates after so many, all of an evaluation is timed."""
    overlap: bool | None = None
    """Whether training goes on during an evaluation; if left out, as `ogspr train` decides."""
