"""What a user may decide about a run, and how tensor code may run; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from ogspr.envs import EnvOptions
from ogspr.errors import UserError, require_positive
from ogspr.types import Place

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


ConfigT = TypeVar("ConfigT")

_PAPER = EnvOptions()


@dataclass(frozen=True)
class EvaluationOptions:
    """Full episodes of a frozen copy of the policy, without exploration noise."""

    every: int = 5_000
    """Agent steps between two evaluations; there is also one at the start and one at the end."""
    episodes: int = 10
    """Episodes of each evaluation."""
    final_episodes: int | None = None
    """Episodes of the last evaluation, at the end of the run. Default: as many as in the others."""
    environments: int = 10
    """Environments, each in a separate process, that play the episodes side by side."""
    overlap: bool | None = None
    """Whether training continues during an evaluation. Default: yes, with at least 8 cores."""

    def __post_init__(self) -> None:
        require_positive(
            every=self.every,
            episodes=self.episodes,
            final_episodes=self.final_episodes,
            environments=self.environments,
        )
        fewest = min(self.episodes, self.final_episodes or self.episodes)
        if self.environments > fewest:
            raise UserError(
                f"{self.environments} evaluation environments for {fewest} episodes; use "
                "fewer (--evaluation.environments)."
            )


@dataclass(frozen=True)
class ReplayOptions:
    """The replay buffer: how many observations it holds, and where."""

    capacity: int | None = None
    """Observations it holds. Default: all of the run, at most 1 000 000."""
    place: Place | None = None
    """device: next to the networks. pinned: in main memory, read by the GPU. Default: where it fits."""

    def __post_init__(self) -> None:
        require_positive(capacity=self.capacity)


@dataclass(frozen=True)
class ComputeOptions:
    """Device, compilation, precision and determinism."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: a GPU if there is one."""
    mode: Mode | None = None
    """eager, compiled, graph. Default: graph on a GPU, eager on a CPU."""
    precision: Precision | None = None
    """fp32, tf32, bf16. Default: bf16 on a GPU, fp32 on a CPU."""
    deterministic: Annotated[bool, tyro.conf.arg(aliases=("--deterministic",))] = False
    """On a GPU: use only deterministic kernels, so that a resumed run is bit-identical, too. Slower."""
    threads: int | None = None
    """Threads of torch on a CPU. Default: one less than cores. Another number may round differently."""

    def __post_init__(self) -> None:
        require_positive(threads=self.threads)


@dataclass(frozen=True)
class KeepOptions:
    """What is saved besides the csv files, and how often."""

    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints; one is also saved at the start, at the end and on Ctrl-C."""
    checkpoints: int = 2
    """Number of checkpoints to keep."""
    replay: Literal["until-done", "always"] = "until-done"
    """until-done: a finished run drops its replay, 10 GB on DeepMind Control, and cannot be made longer."""
    tensorboard: bool = True
    """Write TensorBoard files."""
    wandb: str | None = None
    """Also log to this project of Weights & Biases (pip install wandb)."""
    trackio: str | None = None
    """Also log to this project of trackio (pip install trackio)."""

    def __post_init__(self) -> None:
        require_positive(checkpoints=self.checkpoints)
        if not self.checkpoint_minutes > 0:
            raise UserError(f"checkpoint minutes must be above 0, got {self.checkpoint_minutes}.")


@dataclass(frozen=True)
class TrainOptions(Generic[ConfigT]):
    """Everything about a run but its task and its seed."""

    agent: ConfigT
    """The method."""
    agent_steps: int = 500_000
    """Agent steps of training."""
    log_every: int = 1_000
    """Agent steps between two rows of train.csv."""
    workers: bool = True
    """Run every environment in a separate process."""
    env: EnvOptions = _PAPER
    """Observations and protocol of the environment."""
    evaluation: EvaluationOptions = EvaluationOptions()
    """Full episodes of a frozen copy of the policy, without exploration noise."""
    replay: ReplayOptions = ReplayOptions()
    """The replay buffer: how many observations it holds, and where."""
    compute: ComputeOptions = ComputeOptions()
    """Device, compilation, precision and determinism."""
    keep: KeepOptions = KeepOptions()
    """What is saved besides the csv files, and how often."""

    def __post_init__(self) -> None:
        require_positive(agent_steps=self.agent_steps, log_every=self.log_every)


def resume_critical(options: dict[str, Any]) -> dict[str, Any]:
    """The part of options, as JSON values, that decides what a run finds: it stays as it is over a resume.

    Left out is what only decides how long it takes, what else is written, and when it ends. Not how many
    episodes the last evaluation has: once that was made it is not made again, and a run would claim what it
    did not do. One that is made longer has such an evaluation at its old end, too.
    """
    kept = {name: value for name, value in options.items() if name not in ("agent_steps", "workers", "keep")}
    kept["evaluation"] = {name: value for name, value in kept["evaluation"].items() if name != "overlap"}
    kept["replay"] = {name: value for name, value in kept["replay"].items() if name != "place"}
    kept["compute"] = {name: value for name, value in kept["compute"].items() if name != "threads"}
    return kept
