"""The command line: names, options and exit codes. The only module that may import everything.

Heavy modules are imported inside the commands, so that `ogspr --help` and worker processes, which
import this file too, start at once.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ogspr._version import __version__
from ogspr.envs import EnvOptions, WorkerDied, WorkerError
from ogspr.envs.trust import current_folder_ignored, refuse_ignored_environment
from ogspr.errors import UserError, unknown
from ogspr.records.console import discard_lost_output, make_console

_PROGRAM = "ogspr"
_DESCRIPTION = "Train agents from pixels with OG-SPR. Start with `ogspr doctor` and `ogspr tasks`."
_TRAIN_DESCRIPTION = """Train an agent: ogspr train TASK [OPTIONS]

A run lives in a folder: settings, csv files, checkpoints, policies. It can be killed at any moment; the same
command goes on with it as if nothing had happened. Defaults below are those of the preset, for the task."""
_NO_OPTIONS = EnvOptions()


def main() -> None:
    run_program(_PROGRAM, _dispatch)


def run_program(program: str, run: Callable[[list[str]], int]) -> None:
    """Runs what the command line asks for: exit code 0, 1 for a failure, 2 for a user's mistake, 128 + n for
    signal n."""
    # What is small is still unprinted now, and Python would complain at its end about a reader that has gone.
    atexit.register(discard_lost_output)
    try:
        refuse_ignored_environment()
        with current_folder_ignored():
            sys.exit(run(sys.argv[1:]))
    except UserError as error:
        print(f"{program}: error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except (WorkerError, WorkerDied) as error:
        print(f"{program}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
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
    if arguments[:1] == ["train"]:
        return _train(arguments[1:])
    if arguments[:1] == ["bench"]:
        raise UserError(
            "`ogspr bench` has moved: run `python -m benchmarks` in a checkout of the source, or "
            "`ogspr doctor --speed` to see how fast training is on this machine."
        )
    code: int = run_subcommand(_PROGRAM, _DESCRIPTION, _COMMANDS, arguments)
    return code


def run_subcommand(
    program: str, description: str, commands: Mapping[str, Callable[..., Any]], arguments: list[str]
) -> Any:
    """Calls the command that is named first, with its options; gives what it returns."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise unknown("command", arguments[0], commands, f"See `{program} --help`.")
    return tyro.extras.subcommand_cli_from_dict(
        dict(commands), prog=program, description=description, args=arguments
    )


def doctor(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = "",
    speed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    preset: str = "",
) -> int:
    """Check this machine: versions, OpenGL, CUDA, memory, each with a fix; or how fast it trains.

    Args:
        task: With --speed: what would be trained. Default: dmc:cheetah-run.
        speed: Measure instead, in about a minute, how fast environment, policy and update are, what bounds
            training and how long a run would take. On a GPU, compiling takes a minute or two more.
        preset: With --speed: the preset of the run. Default: ogspr.
    """
    if speed:
        from ogspr.commands.speed import show_speed

        show_speed(task or "dmc:cheetah-run", preset or "ogspr", make_console())
        return 0
    if task or preset:
        raise UserError(f"a task and --preset only matter to speed: ogspr doctor --speed {task}".rstrip())
    from ogspr.commands.doctor import doctor as run

    return 0 if run(make_console()) else 1


def tasks(text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FILTER]")] = "") -> int:
    """List the known tasks with their actions and the paper's score.

    Args:
        text: Show only names that contain this.
    """
    from ogspr.commands.tasks import show_tasks

    show_tasks(text, make_console())
    return 0


def rollout(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    episodes: int = 1,
    seed: int = 0,
    worker: bool = True,
    out: Path | None = None,
    video: Path | None = None,
    env: tyro.conf.OmitArgPrefixes[EnvOptions] = _NO_OPTIONS,
) -> int:
    """Play whole episodes with the random policy: shows that an environment works.

    Args:
        task: dmc:<domain>-<task>, atari:<Game>, gym:<id> or module.path:factory.
        episodes: How many episodes.
        seed: Seed of the environment and of the policy.
        worker: Run the environment in a process of its own.
        out: Folder for manifest.json and episodes.csv.
        video: An .mp4 or .gif file for the frames.
        env: How the environment is shown.
    """
    from ogspr.commands.rollout import rollout as run

    run(
        task,
        episodes=episodes,
        seed=seed,
        worker=worker,
        options=env,
        out=out,
        video=video,
        console=make_console(),
    )
    return 0


def train() -> int:
    """Train an agent: one command starts a run, the same one goes on with it."""
    raise AssertionError("dispatched before")


def _train(arguments: list[str]) -> int:
    """In two looks: the preset, the task and the file decide what the defaults of all other options are."""
    from ogspr.commands.train import TrainCommand, defaults, with_task
    from ogspr.commands.train import train as run

    config, resume = _value_of("--config", arguments), _value_of("--resume", arguments)
    preset = _value_of("--preset", arguments)
    paths = Path(config) if config else None, Path(resume) if resume else None

    # Which options there are depends on the preset: who is sent to the help should find them there.
    program = f"{_PROGRAM} train" + (f" --preset {preset}" if preset else "")

    def parsed(task: str) -> tuple[Any, Any]:
        base = defaults(task, preset, *paths)
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
    if command.task != assumed:  # it stood where nobody looked for it, or that was the value of an option
        base, command = parsed(command.task)
    command = with_task(command, base.task)
    return _until_stopped(lambda: run(command, make_console()))


def _likely_task(arguments: list[str]) -> str:
    """The first word, or the first that looks like a task."""
    words = [word for word in arguments if not word.startswith("-")]
    if words and arguments[0] == words[0]:
        return words[0]
    return next((word for word in words if ":" in word), "")


def _value_of(option: str, arguments: list[str]) -> str | None:
    """What follows an option, in either way of writing it."""
    for place, argument in enumerate(arguments):
        if argument == option:
            return arguments[place + 1] if place + 1 < len(arguments) else None
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def quickstart(out: Path | None = None) -> int:
    """Train the embedded default: minutes on two cores; ends with a curve and a video.

    Args:
        out: Folder for the run; if left out, runs/quickstart.
    """
    from ogspr.commands.quickstart import quickstart as run

    return _until_stopped(lambda: run(out, make_console()))


def _until_stopped(run: Callable[[], object]) -> int:
    """The exit code of something that trains."""
    from ogspr.commands.train import RunsFailed
    from ogspr.train.signals import Stopped

    try:
        run()
    except Stopped as stopped:
        return stopped.exit_code
    except RunsFailed as failure:
        print(f"{_PROGRAM}: {failure}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def evaluate(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    policy: Literal["best", "last"] = "best",
    episodes: int = 10,
    seed: int = 1_000_000,
    task: str | None = None,
    workers: bool = True,
    out: Path | None = None,
) -> int:
    """Play whole episodes with a trained policy, as in evaluation, and print every score.

    Args:
        run: The folder of a run, or a policy file.
        policy: Which one of the run.
        episodes: How many episodes, up to ten side by side.
        seed: Seed of the first environment; the others have the next ones.
        task: Needed where the task is code of your own: says that you trust it.
        workers: Run every environment in a process of its own.
        out: A csv file for the scores.
    """
    from ogspr.commands.policy import evaluate as run_command

    run_command(
        run,
        policy=policy,
        task=task,
        episodes=episodes,
        seed=seed,
        workers=workers,
        out=out,
        console=make_console(),
    )
    return 0


def play(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    policy: Literal["best", "last"] = "best",
    episodes: int = 1,
    grid: bool = False,
    seed: int = 1_000_000,
    task: str | None = None,
    workers: bool = True,
    out: Path | None = None,
) -> int:
    """Film a trained policy.

    Args:
        run: The folder of a run, or a policy file.
        policy: Which one of the run.
        episodes: How many episodes.
        grid: Show the episodes side by side instead of one after the other.
        seed: Seed of the first episode; the others have the next ones.
        task: Needed where the task is code of your own: says that you trust it.
        workers: Run every environment in a process of its own.
        out: An .mp4 or .gif file, replaced if it exists; if left out, a new one in the folder of the run.
    """
    from ogspr.commands.policy import play as run_command

    run_command(
        run,
        policy=policy,
        task=task,
        episodes=episodes,
        seed=seed,
        grid=grid,
        workers=workers,
        out=out,
        console=make_console(),
    )
    return 0


def export(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.safetensors")],
    policy: Literal["best", "last"] = "best",
) -> int:
    """Write the policy of a run to a small file for `ogspr.load`.

    Args:
        run: The folder of a run.
        out: The file.
        policy: Which one of the run.
    """
    from ogspr.commands.policy import export as run_command

    run_command(run, policy=policy, out=out, console=make_console())
    return 0


def report(
    runs: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS [RUNS ...]")],
    out: Path = Path("report"),
    at: int | None = None,
) -> int:
    """Write the paper's tables and figures, and a page for a browser, from a folder of runs.

    Args:
        runs: Folders of runs, or folders that hold such, at any depth.
        out: A folder for report.html, tables (Markdown, LaTeX, csv) and figures (PNG, PDF).
        at: The agent step at which scores are read; if left out, as in the paper: 500 000, Atari 100 000.
    """
    from ogspr.report.build import write_report

    write_report(runs, out, at, make_console())
    return 0


def watch(
    runs: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS [RUNS ...]")],
    port: int = 8642,
    host: str = "127.0.0.1",
) -> int:
    """Serve the page of `ogspr report` while runs go on.

    Args:
        runs: Folders of runs, or folders that hold such, at any depth.
        port: Where it listens; 0: any that is free.
        host: By default only this machine can see it; 0.0.0.0: everybody who can reach it.
    """
    from ogspr.report.serve import serve

    serve(runs, host=host, port=port, console=make_console())
    return 0


def probe(
    runs: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")],
    collectors: tuple[Path, ...] = (),
    episodes: int = 30,
    updates: int = 100_000,
    batch_size: int = 256,
    seed: int = 1_000_000,
    policy: Literal["best", "last"] = "last",
    device: Literal["auto", "cuda", "cpu"] = "auto",
    task: str | None = None,
    workers: bool = True,
    out: Path | None = None,
) -> int:
    """Measure how much of the simulator's state is in what runs have learned to see: linear probing.

    Args:
        runs: Runs of one task, or folders that hold such.
        collectors: The same, or policy files: who plays the episodes; if left out, the runs themselves.
        episodes: Episodes of each collector; a fifth of them is held out.
        updates: Updates of each linear predictor.
        batch_size: Steps in an update.
        seed: Decides where episodes begin, which are held out, and what batches consist of.
        policy: Which policy of a collector plays.
        device: auto: a GPU if there is one.
        task: Needed where the task is code of your own: says that you trust it.
        workers: Run every environment in a process of its own.
        out: A csv file for all losses; a figure is drawn beside it.
    """
    from ogspr.commands.probe import probe as run_command

    run_command(
        runs,
        collectors=collectors or None,
        episodes=episodes,
        updates=updates,
        batch_size=batch_size,
        seed=seed,
        policy=policy,
        workers=workers,
        device=device,
        out=out,
        task=task,
        console=make_console(),
    )
    return 0


_COMMANDS: dict[str, Callable[..., int]] = {
    "doctor": doctor,
    "tasks": tasks,
    "rollout": rollout,
    "quickstart": quickstart,
    "train": train,
    "eval": evaluate,
    "play": play,
    "export": export,
    "report": report,
    "watch": watch,
    "probe": probe,
}
