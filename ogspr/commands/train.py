"""`ogspr train`: from the words of a command line to a session, and what is said around it.

Torch is imported when all words are known to be right: help and mistakes need not wait for it.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar

import tyro
from rich.console import Console

from ogspr.agents.methods import MethodEntry, all_preset_names, check_revision, method_named
from ogspr.callbacks import Callback, StopTraining
from ogspr.envs import check_task, is_own_code, trusted_task
from ogspr.envs.trust import current_folder_ignored
from ogspr.errors import RunsFailed, UserError
from ogspr.records.display import FragileDisplay, make_display, score_text
from ogspr.records.files import check_default_place
from ogspr.records.run import RunFolder, folder_name, read_json
from ogspr.records.settings_io import changed
from ogspr.training.options import TrainOptions
from ogspr.training.own_method import own_method
from ogspr.training.presets import preset_options
from ogspr.training.saved_run import read_config
from ogspr.training.signals import Stopped, StopRequest

if TYPE_CHECKING:
    from ogspr.training.run import Run


OwnMethod: TypeAlias = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="MODULE:NAME",
        help="Your own method: an ogspr.MethodEntry, or a function that returns one.",
    ),
]
"""An option of every command that reads configurations of methods; `ogspr.cli` registers what it names."""

Method: TypeAlias = MethodEntry | str | None
"""A method that is code of a user's own, or how `--method` names it; None: one of those there are."""

ConfigT = TypeVar("ConfigT")
DEFAULT_PRESET = "ogspr"


def _presets_there_are(default: str) -> str:
    """For the help: known when it is asked for, because `--method` adds some."""
    return f"(default: {default}; there are: {', '.join(all_preset_names())})"


@dataclass(frozen=True)
class TrainCommand(Generic[ConfigT]):
    """Train an agent: one command starts a run, the same command resumes it."""

    options: Annotated[TrainOptions[ConfigT], tyro.conf.arg(name="")]
    """All settings of the run."""
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = ""
    """dmc:<domain>-<task>, atari:<Game>, gym:<id> or module.path:factory; `ogspr tasks` lists them."""
    preset: Annotated[str, tyro.conf.arg(help_behavior_hint=_presets_there_are)] = DEFAULT_PRESET
    """Where all other options start from: a method, a variant of one, or small, which suits a CPU."""
    method: OwnMethod = None
    seeds: tuple[int, ...] = (0,)
    """One run for each seed, side by side on one device."""
    out: Path | None = None
    """Folder for the runs, seed-<seed> below it. Default: runs/<task>/<preset>."""
    resume: Path | None = None
    """Resume the run in this folder. Repeating the command that started it does the same."""
    config: Path | None = None
    """A TOML or JSON file with options, named as here (agent.discount = 0.98); options given here win."""
    allow_changes: bool = False
    """Resume a run although options that affect its results differ from those it was started with."""
    quiet: bool = False
    """Print only warnings and errors."""

    def run(self, console: Console) -> int:
        train(self, console)
        return 0


def defaults(
    task: str, preset: str | None, config: Path | None, resume: Path | None, method: Method = None
) -> TrainCommand[Any]:
    """What holds where the command line says nothing: of a run, or of a preset and a file.

    Its task is that of the run, else `task`, else that of the file; whether a file may, `with_task` decides.
    """
    if resume is not None:
        if config is not None:
            raise UserError("--resume uses the settings of the run; omit --config.")
        return _of_run(resume)
    given = _settings_file(config) if config is not None else _SettingsFile()
    name = preset or given.preset or default_preset(method)
    task = task or given.task
    options = changed(preset_options(name, task), given.options, str(config))
    return TrainCommand(options, task=task, preset=name, seeds=given.seeds, config=config)


def default_preset(method: Method) -> str:
    """Who names a method of their own and no preset means that method."""
    if method is None:
        return DEFAULT_PRESET
    return (own_method(method) if isinstance(method, str) else method).presets[0]


def with_task(command: TrainCommand[Any], default: str) -> TrainCommand[Any]:
    """The command with the task of its run or file, unless that is code which only the file has named."""
    if command.resume is not None:
        how = f"ogspr train {{}}{_method_words(command)} --resume {command.resume}"
        return replace(command, task=trusted_task(default, command.task or None, command.resume, how))
    if command.config is not None and not command.task and default:
        how = f"ogspr train {{}}{_method_words(command)} --config {command.config}"
        return replace(command, task=trusted_task(default, None, command.config, how))
    return command


def train(command: TrainCommand[Any], console: Console, callbacks: Sequence[Callback] = ()) -> Sequence[Run]:
    """Trains to the end, or until it is stopped; the runs as they ended."""
    _check(command)
    from ogspr.commands.spectator import Announcer
    from ogspr.training.run import Request
    from ogspr.training.session import Session

    request = Request(
        command.task,
        command.preset,
        command.seeds,
        command.options,
        tuple(run_folders(command)),
        command.allow_changes,
    )
    stop = StopRequest()
    display = FragileDisplay(make_display(console, quiet=command.quiet), lost=stop.on_hangup)
    announcer = Announcer(display, request, callbacks, stop)
    try:
        for line in _services_of_file(command):
            display.warning(line)
        # Of programs that are not the command, too: torch's compiler asks Python about the processor.
        with current_folder_ignored(), stop.listening():
            session = Session(request, announcer, stop)
            try:
                runs: Sequence[Run] = session.run()
            except Stopped:
                if announcer.error is None:
                    raise
                if not isinstance(announcer.error, StopTraining):
                    raise announcer.error from None
                display.line(f"stopped by a callback; {_how_to_go_on(command)}")
                runs = announcer.runs
        if session.failed:
            raise RunsFailed("; ".join(session.failed), diverged=session.all_diverged)
        if announcer.error is None:
            for run in runs:
                display.line(f"{run.folder.path} is done: {_scores(run)}")
        announcer.end(runs)
    except Stopped as stopped:
        display.line(f"stopped by {stopped}; {_how_to_go_on(command)}")
        raise
    finally:
        display.close()
    return runs


def _services_of_file(command: TrainCommand[Any]) -> Iterator[str]:
    """Where metrics will be sent because a file says so, which may be from someone else."""
    file = command.resume or command.config
    if file is None:
        return
    said = defaults(command.task, command.preset, command.config, command.resume).options.keep
    for option, service in (("wandb", "Weights & Biases"), ("trackio", "trackio")):
        project = getattr(command.options.keep, option)
        if project is not None and project == getattr(said, option):
            yield (
                f"the metrics of this run are sent to the project {project!r} of {service}, "
                f"because {file} says so; --keep.{option} None prevents that."
            )


def _check(command: TrainCommand[Any]) -> None:
    """Refuses what can be seen to be wrong from the words alone."""
    if not command.task:
        raise UserError("no task given; for example: ogspr train dmc:walker-walk; `ogspr tasks` lists them.")
    check_task(command.task, command.options.env)
    if not command.seeds or len(set(command.seeds)) != len(command.seeds):
        given = ", ".join(map(str, command.seeds)) or "none"
        raise UserError(f"--seeds needs one or more distinct integers, got {given}.")
    if command.resume is not None and (len(command.seeds) > 1 or command.out is not None):
        raise UserError("--resume continues one run, in its folder; omit --seeds and --out.")
    if command.resume is None and command.out is None:
        for folder in run_folders(command):
            check_default_place(folder, f"--out {shlex.quote(str(folder.parent))}")


def run_folders(command: TrainCommand[Any]) -> list[Path]:
    """One for each seed: the one to resume, or runs/<task>/<preset>/seed-<seed>."""
    if command.resume is not None:
        return [command.resume]
    base = (
        command.out if command.out is not None else Path("runs") / folder_name(command.task) / command.preset
    )
    return [base / f"seed-{seed}" for seed in command.seeds]


def _how_to_go_on(command: TrainCommand[Any]) -> str:
    started = [path for path in run_folders(command) if RunFolder(path).exists]
    if not started:
        return "nothing had been started yet."
    own_code = (f" {command.task}" if is_own_code(command.task) else "") + _method_words(command)
    commands = "\n".join(f"    ogspr train{own_code} --resume {path}" for path in started)
    return f"everything is saved. The same command resumes from here, or:\n{commands}"


def _method_words(command: TrainCommand[Any]) -> str:
    return f" --method {command.method}" if command.method is not None else ""


def _scores(run: Run) -> str:
    progress = run.trainer.progress
    return f"score {score_text(progress.last_score)}, best {score_text(progress.best_score)}"


def _of_run(path: Path) -> TrainCommand[Any]:
    folder = RunFolder(path)
    config = read_config(folder)
    return TrainCommand(
        config.train_options(str(folder.config)),
        task=config.task,
        preset=config.preset,
        seeds=(config.seed,),
        resume=path,
    )


@dataclass(frozen=True)
class _SettingsFile:
    """What a settings file may hold besides options."""

    task: str = ""
    preset: str = ""
    seeds: tuple[int, ...] = (0,)
    options: dict[str, Any] = field(default_factory=dict)


def _settings_file(path: Path) -> _SettingsFile:
    """TOML or JSON; the config.json of a run will do."""
    content = read_json(path) if path.suffix == ".json" else _toml(path)
    if isinstance(content.get("options"), dict):  # of a run: what else is in it belongs to that run alone
        if "method" in content:
            check_revision(method_named(str(content["method"]), str(path)).name, content, str(path))
        content = {name: content[name] for name in ("task", "preset") if name in content} | content["options"]
    about = {name: content.pop(name) for name in ("task", "preset", "seeds") if name in content}
    return replace(changed(_SettingsFile(), about, str(path)), options=content)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}.") from None
