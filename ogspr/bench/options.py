"""What a user may ask a benchmark for; without torch, so that the command line can offer it at once."""

from __future__ import annotations

from dataclasses import dataclass

from ogspr.train.execution import Mode, Precision


@dataclass(frozen=True)
class UpdateBench:
    """What is measured."""

    variant: str = "ogspr"
    """The preset."""
    suite: str = "dmc"
    """The suite whose sizes and weights it has: dmc or atari100k."""
    modes: tuple[Mode, ...] = ()
    """eager, compiled, graph; if left out, all that this machine can do."""
    precisions: tuple[Precision, ...] = ()
    """fp32, tf32, bf16; if left out, all that this machine can do."""
    learners: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Numbers of learners in one process; more than one are measured in the last mode and precision."""
    batch_size: int | None = None
    """Windows in a batch; if left out, the preset's."""
    capacity: int = 100_000
    """Steps in each replay."""
    updates: int = 100
    """Updates timed in one round."""
    rounds: int = 5
    """Rounds; the median counts."""
