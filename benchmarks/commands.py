"""The benchmarks and their options, each declared once.

Without torch: worker processes need not wait for it, and neither do help and typing mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.harness import Report
from ogspr.training.options import Mode, Precision

_Task = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    out: Path | None = None
    """A csv file for the numbers; the command is written next to it, as <name>.command."""

    def run(self, report: Report) -> Any:
        """Measures, with the function `measure` of its module, which may import torch."""
        module = next(name for name, kind in COMMANDS.items() if kind is type(self))
        return import_module(f"benchmarks.{module}").measure(self, report)


@dataclass(frozen=True, kw_only=True)
class Update(Benchmark):
    """Milliseconds per update: eager, compiled, graph; each precision; several learners."""

    preset: str = "ogspr"
    """What is updated: ogspr, one of its variants, mrq or drqv2."""
    suite: str = "dmc"
    """The suite whose sizes and weights are used: dmc or atari100k."""
    modes: tuple[Mode, ...] = ()
    """eager, compiled, graph. Default: all that this machine supports."""
    precisions: tuple[Precision, ...] = ()
    """fp32, tf32, bf16. Default: all that this machine supports."""
    learners: tuple[int, ...] = ()
    """Learners in one process; the second and later values run in the last mode and precision only. Default:
    1 to 5, on a CPU 1 and 2."""
    batch_sizes: tuple[int, ...] = ()
    """Windows per batch; later values as above. Default: the preset's, on a CPU 16."""
    capacities: tuple[int, ...] = ()
    """Steps in each replay buffer; later values as above. Default: 100 000, on a CPU 2000."""
    updates: int | None = None
    """Updates timed per round. Default: 100, on a CPU 3."""
    rounds: int = 3
    """Rounds; the median counts. One more comes first, to warm up."""


@dataclass(frozen=True, kw_only=True)
class TrainingUpdate(Benchmark):
    """An update as it runs in training."""

    preset: str = "ogspr"
    """What is updated: ogspr, one of its variants, mrq or drqv2."""
    suite: str = "dmc"
    """The suite whose sizes and weights are used: dmc or atari100k."""
    learners: int = 1
    """Learners in one process."""
    batch_size: int | None = None
    """Windows per batch. Default: the preset's, on a CPU 16."""


@dataclass(frozen=True, kw_only=True)
class Kernels(TrainingUpdate):
    """What the device does during an update, kernel by kernel, and how long it is idle."""

    updates: int | None = None
    """Updates that are traced. Default: 20, on a CPU 2."""


@dataclass(frozen=True, kw_only=True)
class Sharing(TrainingUpdate):
    """What updates and rendering cost each other: each alone, and both at the same time."""

    task: _Task = "dmc:cheetah-run"
    """What is rendered."""
    drawers: tuple[int, ...] = (1, 10)
    """Numbers of processes that render."""
    seconds: float = 5.0
    """Length of each measurement."""


@dataclass(frozen=True, kw_only=True)
class Train(Benchmark):
    """Milliseconds per agent step of a real training run, evaluation included, and where they go."""

    task: _Task = "dmc:cheetah-run"
    """What is trained."""
    methods: tuple[str, ...] = ("ogspr",)
    """Presets; `ogspr anonmethod mrq drqv2` are those of the paper's Table 5 that can be trained here."""
    seeds: tuple[int, ...] = ()
    """Numbers of seeds in one process. Default: 1, 2, 3 and 5, on a CPU 1."""
    steps: int | None = None
    """Agent steps that are timed. Default: the distance between two evaluations, so that one is included.
    For mrq use a multiple of 250: its encoder learns in bursts."""
    warm_up: int = 5_000
    """Agent steps before that, most of them with random actions: compilation, first episodes. If the preset
    evaluates after that many, a whole evaluation is timed."""
    overlap: bool | None = None
    """Whether training continues during an evaluation. Default: as `ogspr train` decides."""


@dataclass(frozen=True, kw_only=True)
class Precisions(Benchmark):
    """What rounding does to the gradients of a run, compared with what another batch does to them."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run with its replay buffer; its newest checkpoint is read, and nothing in the folder is changed."""
    updates: int = 16
    """Batches that are compared."""
    mode: Mode | None = None
    """How updates in precisions other than fp32 run. Default: graph on a GPU, eager on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Env(Benchmark):
    """Agent steps per second of environments, next to the usual ways of running the same task."""

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TASK [TASK ...]")] = ()
    """Environments to measure."""
    steps: int = 100
    """Agent steps (or frames) timed in one round."""
    rounds: int = 5
    """Rounds; the contenders take turns, and the median round counts."""


@dataclass(frozen=True, kw_only=True)
class Random(Benchmark):
    """Scores of the random policy: what 0 means in normalised scores."""

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TASK ...]")] = ()
    """Environments. Default: all of the paper."""
    episodes: int = 100
    """Episodes of each."""
    seed: int = 0
    """Seed of the environments and of the actions."""
    action_repeat: int | None = None
    """Frames for which an action is held. Default: 2 for dmc, 4 for atari, otherwise 1."""
    processes: int | None = None
    """Tasks that run at the same time. Default: the number of cores."""
    ship: bool = False
    """Also write the scores that ship with the package, ogspr/data/random_scores.csv, from what --out holds;
    a second call with the same --out plays only what is missing there."""


COMMANDS: dict[str, type[Benchmark]] = {
    "env": Env,
    "update": Update,
    "kernels": Kernels,
    "sharing": Sharing,
    "train": Train,
    "precision": Precisions,
    "random": Random,
}
