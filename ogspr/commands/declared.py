"""The commands of `ogspr` and their options, each declared once.

Without torch: help and typing mistakes need not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

import tyro
from rich.console import Console

from ogspr.commands.train import OwnMethod, TrainCommand
from ogspr.envs import EnvOptions
from ogspr.errors import UserError

Which: TypeAlias = Literal["best", "last"]
_NO_OPTIONS = EnvOptions()


class Command(Protocol):
    """A frozen dataclass: its fields are options, their docstrings the help."""

    def run(self, console: Console) -> int:
        """Does it, with modules that it imports only now; the exit code."""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine: versions, OpenGL, CUDA, memory, each with a fix; or how fast it trains."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = ""
    """With --speed: what would be trained. Default: dmc:cheetah-run."""
    speed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Measure instead, in about a minute, how fast environment, policy and update are, what bounds
    training and how long a run would take. On a GPU, compiling takes a minute or two more."""
    preset: str = ""
    """With --speed: the preset of the run. Default: ogspr."""
    method: OwnMethod = None

    def run(self, console: Console) -> int:
        if self.speed:
            from ogspr.commands.speed import show_speed

            show_speed(self, console)
            return 0
        if self.task or self.preset or self.method:
            raise UserError(
                "a task, --preset and --method apply to --speed only: "
                f"ogspr doctor --speed {self.task}".rstrip()
            )
        from ogspr.commands.doctor import doctor

        return 0 if doctor(console) else 1


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """List the known tasks with their actions and the paper's score."""

    text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FILTER]")] = ""
    """Show only names that contain this."""

    def run(self, console: Console) -> int:
        from ogspr.commands.tasks import show_tasks

        show_tasks(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Play full episodes with the random policy: shows that an environment works."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """dmc:<domain>-<task>, atari:<Game>, gym:<id> or module.path:factory."""
    episodes: int = 1
    """Number of episodes."""
    seed: int = 0
    """Seed of the environment and of the policy."""
    worker: bool = True
    """Run the environment in a separate process."""
    out: Path | None = None
    """Folder for manifest.json and episodes.csv."""
    video: Path | None = None
    """An .mp4 or .gif file for the frames."""
    env: tyro.conf.OmitArgPrefixes[EnvOptions] = _NO_OPTIONS
    """Observations and protocol of the environment."""

    def run(self, console: Console) -> int:
        from ogspr.commands.rollout import rollout

        rollout(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Train the embedded default: minutes on two cores; ends with a curve and a video."""

    out: Path | None = None
    """Folder for the run. Default: runs/quickstart."""

    def run(self, console: Console) -> int:
        from ogspr.commands.quickstart import quickstart

        quickstart(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Play full episodes with a trained policy, as in evaluation, and print every score."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a policy file."""
    policy: Which = "best"
    """Which policy of the run."""
    episodes: int = 10
    """Number of episodes; up to ten run side by side."""
    seed: int = 1_000_000
    """Seed of the first environment; the others use consecutive seeds."""
    task: str | None = None
    """Required if the task is your own code: confirms that you trust it."""
    method: OwnMethod = None
    workers: bool = True
    """Run every environment in a separate process."""
    out: Path | None = None
    """A csv file for the scores."""

    def run(self, console: Console) -> int:
        from ogspr.commands.policy import evaluate

        evaluate(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Play:
    """Record a video of a trained policy."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a policy file."""
    policy: Which = "best"
    """Which policy of the run."""
    episodes: int = 1
    """Number of episodes."""
    grid: bool = False
    """Show the episodes side by side instead of one after the other."""
    seed: int = 1_000_000
    """Seed of the first episode; the others use consecutive seeds."""
    task: str | None = None
    """Required if the task is your own code: confirms that you trust it."""
    method: OwnMethod = None
    workers: bool = True
    """Run every environment in a separate process."""
    out: Path | None = None
    """An .mp4 or .gif file, replaced if it exists. Default: a new one in the folder of the run."""

    def run(self, console: Console) -> int:
        from ogspr.commands.policy import play

        play(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the policy of a run to a small file for `ogspr.load`."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.safetensors")]
    """The policy file, which must end in .safetensors."""
    policy: Which = "best"
    """Which policy of the run."""
    method: OwnMethod = None

    def run(self, console: Console) -> int:
        from ogspr.commands.policy import export

        export(self, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write the paper's tables and figures, and a page for a browser, from a folder of runs."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS [RUNS ...]")]
    """Run folders, or folders that contain runs, at any depth."""
    out: Path | None = None
    """A folder for report.html, tables (Markdown, LaTeX, csv) and figures (PNG, PDF). Default: report."""
    at: int | None = None
    """The agent step at which scores are read. Default, as in the paper: 500 000, Atari 100 000."""

    def run(self, console: Console) -> int:
        from ogspr.report.build import write_report

        write_report(self.runs, self.out, self.at, console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Serve the page of `ogspr report` while runs are training."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS [RUNS ...]")]
    """Run folders, or folders that contain runs, at any depth."""
    port: int = 8642
    """Port to listen on; 0: any free port."""
    host: str = "127.0.0.1"
    """By default only this machine can see the page; 0.0.0.0: everyone who can reach this machine."""

    def run(self, console: Console) -> int:
        from ogspr.report.serve import serve

        serve(self.runs, host=self.host, port=self.port, console=console)
        return 0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Linear probing: measure how much of the simulator's state the representations of runs contain."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Runs of one task, or folders that contain runs."""
    collectors: tuple[Path, ...] = ()
    """Runs or policy files that play the episodes. Default: the runs themselves."""
    episodes: int = 30
    """Episodes of each collector; a fifth of them is held out."""
    updates: int = 100_000
    """Updates of each linear predictor."""
    batch_size: int = 256
    """Steps in the batch of an update."""
    seed: int = 1_000_000
    """Seed of the starts of episodes, of the choice of held-out episodes, and of batches."""
    policy: Which = "last"
    """Which policy of each collector plays."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: a GPU if there is one."""
    task: str | None = None
    """Required if the task is your own code: confirms that you trust it."""
    method: OwnMethod = None
    workers: bool = True
    """Run every environment in a separate process."""
    out: Path | None = None
    """A csv file for all losses; a figure is saved next to it."""

    def run(self, console: Console) -> int:
        from ogspr.commands.probe import probe

        probe(self, console)
        return 0


COMMANDS: dict[str, type[Command]] = {
    "doctor": Doctor,
    "tasks": Tasks,
    "rollout": Rollout,
    "quickstart": Quickstart,
    "train": TrainCommand,
    "eval": Eval,
    "play": Play,
    "export": Export,
    "report": Report,
    "watch": Watch,
    "probe": Probe,
}
SWEEP = "Run a whole grid of tasks, methods and seeds, here or on a cluster; resume it, watch it, stop it."
