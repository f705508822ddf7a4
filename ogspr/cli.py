"""The command line: which command is meant, what its words mean, exit codes.

Commands are imported when one is asked for: worker processes import this file too, and should start at once.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from ogspr._version import __version__
from ogspr.envs import WorkerDied, WorkerError
from ogspr.envs.trust import current_folder_ignored, refuse_ignored_environment
from ogspr.errors import RunsFailed, UserError, unknown
from ogspr.records.display import discard_lost_output, make_console
from ogspr.training.signals import Stopped

if TYPE_CHECKING:
    from ogspr.commands.train import TrainCommand

_PROGRAM = "ogspr"
_DESCRIPTION = "Train agents from pixels with OG-SPR. Start with `ogspr doctor` and `ogspr tasks`."
_TRAIN_DESCRIPTION = """Train an agent: ogspr train TASK [OPTIONS]

A run lives in a folder: settings, csv files, checkpoints, policies. It can be killed at any moment; the same
command resumes it as if nothing had happened. The defaults below are those of the preset for the task."""


def main() -> None:
    run_program(_PROGRAM, _dispatch)


def run_program(program: str, run: Callable[[list[str]], int]) -> None:
    """Runs what the command line asks for, and exits.

    Exit codes: 0; 1 for a failure, 2 for a user's mistake, 3 if runs diverged, 74 if a disk is full or a file
    system fails, 75 if another process uses the run, 128 + n for signal n.
    """
    # What is small is still unprinted now, and Python would complain at its end about a reader that has gone.
    atexit.register(discard_lost_output)
    try:
        refuse_ignored_environment()
        with current_folder_ignored():
            sys.exit(run(sys.argv[1:]))
    except UserError as error:
        print(f"{program}: error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    except (WorkerError, WorkerDied, RunsFailed) as error:
        print(f"{program}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code if isinstance(error, RunsFailed) else 1)
    except Stopped as stopped:
        sys.exit(stopped.exit_code)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except BrokenPipeError:
        if not discard_lost_output():
            raise  # another pipe
        sys.exit(128 + signal.SIGPIPE)  # `| head` has read enough


def _dispatch(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        make_console().print(f"{_PROGRAM} {__version__}")
        return 0
    if arguments[:1] == ["bench"]:
        raise UserError(
            "`ogspr bench` has moved: run `python -m benchmarks` in a checkout of the source, or "
            "`ogspr doctor --speed` to see how fast training is on this machine."
        )
    from ogspr.commands.declared import COMMANDS, SWEEP, Command

    method = _value_of("--method", arguments)
    if method is not None and hasattr(COMMANDS.get(arguments[0]), "method"):
        from ogspr.agents.methods import register
        from ogspr.training.own_method import own_method

        register(own_method(method))  # before all other words: presets and options depend on it
    if arguments[:1] == ["train"]:
        return _train_command(arguments[1:]).run(make_console())
    if arguments[:1] == ["sweep"]:
        from ogspr.commands import sweep

        chosen: Command = run_subcommand(f"{_PROGRAM} sweep", sweep.ABOUT, sweep.COMMANDS, arguments[1:])
        return chosen.run(make_console())
    # Only their names are needed here; which options they have depends on what comes behind.
    named = {"train": COMMANDS["train"].__doc__, "sweep": SWEEP}
    later = {name: make_dataclass(name, (), namespace={"__doc__": about}) for name, about in named.items()}
    command: Command = run_subcommand(_PROGRAM, _DESCRIPTION, COMMANDS | later, arguments)
    return command.run(make_console())


def run_subcommand(
    program: str, description: str, commands: Mapping[str, Callable[..., Any]], arguments: list[str]
) -> Any:
    """Calls the command that is named first, with its options; gives what it returns."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise unknown("command", arguments[0], commands, f"See `{program} --help`.")
    return tyro.extras.subcommand_cli_from_dict(
        dict(commands), prog=program, description=description, args=arguments
    )


def _train_command(arguments: list[str]) -> TrainCommand[Any]:
    """In two looks: the preset, the task and the file decide what the defaults of all other options are."""
    from ogspr.commands.train import TrainCommand, defaults, with_task

    config, resume = _value_of("--config", arguments), _value_of("--resume", arguments)
    paths = Path(config) if config else None, Path(resume) if resume else None
    preset, method = _value_of("--preset", arguments), _value_of("--method", arguments)
    # Which options there are depends on method and preset: who is sent to the help should find them there.
    program = f"{_PROGRAM} train" + (f" --method {method}" if method else "")
    program += f" --preset {preset}" if preset else ""

    def parsed(task: str) -> tuple[Any, Any]:
        base = defaults(task, preset, *paths, method)
        kind: Any = TrainCommand[type(base.options.agent)]  # type: ignore[misc]
        return base, tyro.cli(
            kind,
            prog=program,
            description=_TRAIN_DESCRIPTION,
            default=replace(base, task=""),  # what is there afterwards stood on the command line
            args=arguments,
            config=(tyro.conf.AvoidSubcommands,),
        )

    assumed = _likely_task(arguments)
    base, command = parsed(assumed)
    if command.task != assumed:  # it was in an unexpected place, or was the value of an option
        base, command = parsed(command.task)
    return with_task(command, base.task)


def _likely_task(arguments: list[str]) -> str:
    """The first word, or the first that looks like a task."""
    words = [word for word in arguments if not word.startswith("-")]
    if words and arguments[0] == words[0]:
        return words[0]
    return next((word for word in words if ":" in word), "")


def _value_of(option: str, arguments: list[str]) -> str | None:
    """What follows an option, in either way of writing it; the last one counts."""
    value = None
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == option:
            value = following
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
    return value
