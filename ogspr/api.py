"""Training from Python: `runs = ogspr.train("dmc:walker-walk", seeds=[1, 2])`."""

from __future__ import annotations

import contextlib
import inspect
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ogspr.agents.methods import MethodEntry
from ogspr.callbacks import Callback
from ogspr.commands.train import TrainCommand, defaults, with_task
from ogspr.commands.train import train as run_command
from ogspr.errors import RunsFailed, UserError
from ogspr.records.display import make_console
from ogspr.records.settings_io import changed, plain
from ogspr.records.tables import mean_scores
from ogspr.training.options import TrainOptions
from ogspr.training.own_method import registered
from ogspr.training.signals import Stopped

if TYPE_CHECKING:
    from ogspr.loading import TrainedAgent


@dataclass(frozen=True)
class TrainedRun:
    """A run that `train` started or resumed."""

    folder: Path
    task: str
    seed: int
    agent_steps: int
    scores: dict[int, float] = field(repr=False)
    """Mean score of every evaluation, by agent step."""

    @property
    def score(self) -> float | None:
        """Mean score of the last evaluation; None before the first."""
        return self.scores[max(self.scores)] if self.scores else None

    @property
    def best_score(self) -> float | None:
        return max(self.scores.values(), default=None)

    def load(self, policy: str = "best", *, device: str = "cpu", seed: int = 0) -> TrainedAgent:
        """Its policy, `best` or `last`, as `ogspr.load` gives it."""
        from ogspr.loading import load

        return load(self.folder, policy=policy, device=device, seed=seed)


def train(
    task: str = "",
    *,
    preset: str = "",
    method: MethodEntry | str | None = None,
    seeds: Sequence[int] = (),
    out: str | Path | None = None,
    resume: str | Path | None = None,
    config: str | Path | None = None,
    allow_changes: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Any,
) -> list[TrainedRun]:
    """Trains like `ogspr train`: starts runs, saves them, and resumes runs that exist.

    Args:
        task: dmc:<domain>-<task>, atari:<Game>, gym:<id> or module.path:factory.
        preset: Where all options start from; if left out, ogspr, or the first one of `method`.
        method: A method of your own: a MethodEntry, or where one is, "module:name".
        seeds: One run for each, side by side on one device; if left out, 0.
        out: Folder for the runs, seed-<seed> below it; if left out, runs/<task>/<preset>.
        resume: The folder of a run to go on with.
        config: A TOML or JSON file with options; those given here win.
        allow_changes: Resume a run although options that affect its results differ.
        callbacks: Are called during training, and may stop it.
        quiet: Print only warnings and errors.
        options: As on the command line; a group of options is a dict: `agent_steps=10_000`,
            `agent={"discount": 0.98}`, `evaluation={"every": 1000}`. A configuration also works:
            `agent=dataclasses.replace(preset("ogspr"), observation=None)`.

    Ctrl-C saves everything and raises KeyboardInterrupt, SIGTERM SystemExit; the same call then resumes.
    RunsFailed: some runs failed; the others are complete.
    """
    if resume is not None and (preset or tuple(seeds) or out is not None):
        raise UserError("resume uses the settings of the run; omit preset, seeds and out.")
    entry = registered(method) if method is not None else None
    with _said_in_python():
        base = defaults(task, preset or None, _path(config), _path(resume), entry)
        command: TrainCommand[Any] = with_task(
            replace(
                base,
                options=changed(
                    base.options, {name: plain(value) for name, value in options.items()}, "train"
                ),
                task=task,
                method=method if isinstance(method, str) or method is None else "MODULE:NAME",
                seeds=tuple(seeds) or base.seeds,
                out=_path(out) or base.out,
                allow_changes=allow_changes,
                quiet=quiet,
            ),
            base.task,
        )
        try:
            runs = run_command(command, make_console(), callbacks)
        except Stopped as stopped:
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(stopped.exit_code) from None
    return [
        TrainedRun(
            run.folder.path,
            run.config.task,
            run.config.seed,
            run.trainer.progress.agent_steps,
            {int(step): score for step, score in mean_scores(run.folder.evaluation_table).items()},
        )
        for run in runs
    ]


@contextlib.contextmanager
def _said_in_python() -> Iterator[None]:
    """Errors name arguments of `train` instead of options: out, not --out."""
    try:
        yield
    except (RunsFailed, UserError) as error:
        error.args = (_in_python(str(error)),)
        raise


def _in_python(message: str) -> str:
    """But for what is to be typed into a terminal."""
    if "ogspr train " in message:
        return message
    names = {*inspect.signature(train).parameters, *(option.name for option in fields(TrainOptions))}
    options = "|".join(sorted(name.replace("_", "-") for name in names))
    return re.sub(rf"--((?:{options})(?:\.[a-z.-]*[a-z])?)(?![\w-])", _as_argument, message)


def _as_argument(option: re.Match[str]) -> str:
    return option[1].replace("-", "_")


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


__all__ = ["RunsFailed", "TrainedRun", "train"]
