"""`ogspr train`: from the words of a command line to a session, and what is said around it.

Torch is imported when all words are known to be right: help and mistakes need not wait for it.
"""

from __future__ import annotations

import inspect
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar

import tyro
from rich.console import Console

from ogspr.agents.methods import MethodEntry, check_revision, method_named
from ogspr.callbacks import Callback, StopTraining
from ogspr.envs import check_task, is_own_code, trusted_task
from ogspr.envs.trust import current_folder_ignored, hidden, import_named
from ogspr.errors import RunsFailed, UserError, unknown
from ogspr.records.display import FragileDisplay, make_display, score_text
from ogspr.records.files import check_default_place
from ogspr.records.run import RunFolder, read_json
from ogspr.records.settings_io import changed
from ogspr.training.options import TrainOptions
from ogspr.training.presets import preset_options
from ogspr.training.saved_run import read_config
from ogspr.training.signals import Stopped, StopRequest

if TYPE_CHECKING:
    from ogspr.training.run import Run


OwnMethod: TypeAlias = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="MODULE:NAME",
        help="A method that is code of your own: an ogspr.MethodEntry, or a function that returns one.",
    ),
]
"""An option of every command that reads configurations of methods; `ogspr.cli` registers what it names."""


def own_method(name: str) -> MethodEntry:
    """What `--method` names, imported; a UserError if that is no method."""
    module_name, _, attribute = name.partition(":")
    file = PurePath(module_name)
    if file.suffix == ".py":
        module_name = ".".join(file.with_suffix("").parts)
        raise UserError(f"--method {name}: name the module, not its file: {module_name}:NAME.")
    if not module_name or not attribute:
        raise UserError(f"--method expects MODULE:NAME, got '{name}'.")
    module = import_named(module_name)
    if module is None:
        hint = hidden(module_name) or "It is looked for in this folder and on Python's path."
        raise UserError(f"--method {name}: there is no module {module_name}. {hint}")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if isinstance(value, MethodEntry)]
        raise unknown(f"method in {module_name}", attribute, known, hint=hidden(module_name))
    found = getattr(module, attribute)
    entry = found() if _needs_no_arguments(found) else found
    if not isinstance(entry, MethodEntry):
        kind = entry.__name__ if isinstance(entry, type) else f"a {type(entry).__name__}"
        raise UserError(
            f"--method {name} is {kind}; expected an ogspr.MethodEntry, or a function that returns one."
        )
    return entry


def _needs_no_arguments(found: Any) -> bool:
    if not callable(found) or isinstance(found, type):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


ConfigT = TypeVar("ConfigT")
DEFAULT_PRESET = "ogspr"


@dataclass(frozen=True)
class TrainCommand(Generic[ConfigT]):
    """Train an agent: one command starts a run, the same one goes on with it."""

    options: Annotated[TrainOptions[ConfigT], tyro.conf.arg(name="")]
    """Everything that decides how the run goes."""
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = ""
    """dmc:<domain>-<task>, atari:<Game>, gym:<id> or module.path:factory; `ogspr tasks` lists them."""
    preset: str = DEFAULT_PRESET
    """Where all other options start from: ogspr, mrq, drqv2, small, which suits a CPU, or a variant of ogspr.
    Those are as-written, ogspr-op, ogspr-sp, ogspr-svp, shared-adapter, no-adapter, adapter2-only and
    anonmethod."""
    method: OwnMethod = None
    seeds: tuple[int, ...] = (0,)
    """One run for each, side by side on one device."""
    out: Path | None = None
    """Folder for the runs, seed-<seed> below it; if left out, runs/<task>/<preset>."""
    resume: Path | None = None
    """Go on with the run in this folder. The same command again does so, too."""
    config: Path | None = None
    """A TOML or JSON file with options, named as here (agent.discount = 0.98); options given here win."""
    allow_changes: bool = False
    """Go on with a run although options that decide its results differ from those it began with."""
    quiet: bool = False
    """Say only what goes wrong."""

    def run(self, console: Console) -> int:
        train(self, console)
        return 0


def defaults(
    task: str, preset: str | None, config: Path | None, resume: Path | None, method: str | None = None
) -> TrainCommand[Any]:
    """What holds where the command line says nothing: of a run, or of a preset and a file.

    Its task is that of the run, else `task`, else that of the file; whether a file may, `with_task` decides.
    """
    if resume is not None:
        if config is not None:
            raise UserError("--resume goes on with the settings of the run; leave --config out.")
        return _of_run(resume)
    given = _settings_file(config) if config is not None else _SettingsFile()
    name = preset or given.preset or default_preset(method)
    task = task or given.task
    options = changed(preset_options(name, task), given.options, str(config))
    return TrainCommand(options, task=task, preset=name, seeds=given.seeds, config=config)


def default_preset(method: str | None) -> str:
    """Who names a method of their own and no preset means that method."""
    return own_method(method).presets[0] if method is not None else DEFAULT_PRESET


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
    """Trains to the end, or until somebody stops it; the runs as they ended."""
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
            raise RunsFailed("; ".join(session.failed))
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
    """Where numbers will go because a file says so, which may be somebody else's."""
    file = command.resume or command.config
    if file is None:
        return
    said = defaults(command.task, command.preset, command.config, command.resume).options.keep
    for option, service in (("wandb", "Weights & Biases"), ("trackio", "trackio")):
        project = getattr(command.options.keep, option)
        if project is not None and project == getattr(said, option):
            yield (
                f"the numbers of this run go to the project {project!r} of {service}, "
                f"because {file} says so; --keep.{option} None prevents that."
            )


def _check(command: TrainCommand[Any]) -> None:
    """Refuses what can be seen to be wrong from the words alone."""
    if not command.task:
        raise UserError("which task? for example: ogspr train dmc:walker-walk; `ogspr tasks` lists them.")
    check_task(command.task, command.options.env)
    if not command.seeds or len(set(command.seeds)) != len(command.seeds):
        given = ", ".join(map(str, command.seeds)) or "none"
        raise UserError(f"--seeds needs one or more distinct integers, got {given}.")
    if command.resume is not None and (len(command.seeds) > 1 or command.out is not None):
        raise UserError("--resume goes on with one run, in its folder; leave --seeds and --out out.")
    if command.resume is None and command.out is None:
        for folder in run_folders(command):
            check_default_place(folder, f"--out {shlex.quote(str(folder.parent))}")


def run_folders(command: TrainCommand[Any]) -> list[Path]:
    """One for each seed: the one to go on with, or runs/<task>/<preset>/seed-<seed>."""
    if command.resume is not None:
        return [command.resume]
    place = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in command.task)
    base = command.out if command.out is not None else Path("runs") / place / command.preset
    return [base / f"seed-{seed}" for seed in command.seeds]


def _how_to_go_on(command: TrainCommand[Any]) -> str:
    begun = [path for path in run_folders(command) if RunFolder(path).exists]
    if not begun:
        return "nothing had begun yet."
    own_code = (f" {command.task}" if is_own_code(command.task) else "") + _method_words(command)
    commands = "\n".join(f"    ogspr train{own_code} --resume {path}" for path in begun)
    return f"everything is saved. The same command goes on from here, or:\n{commands}"


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
    """What a settings file may hold beside options."""

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
