"""`ogspr quickstart`: a whole run that ends with something to look at."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console

from ogspr.agents.methods import SMALL
from ogspr.commands.declared import Play, Quickstart
from ogspr.commands.policy import play
from ogspr.commands.train import DEFAULT_PRESET, TrainCommand, run_folders, train
from ogspr.commands.video import VideoFile
from ogspr.errors import UserError
from ogspr.records.files import check_default_place
from ogspr.records.run import RunFolder
from ogspr.records.tables import curve, mean_scores, read_rows
from ogspr.training.presets import preset_options
from ogspr.training.saved_run import open_run

TASK = "dmc:cartpole-swingup"
_GPU_STEPS = 30_000
_FOLDER = Path("runs") / "quickstart"
_VIDEO = "quickstart.mp4"  # the same again where `make train` runs again, not one more


def quickstart(wanted: Quickstart, console: Console) -> None:
    """Trains the embedded default, then shows the curve and a video of the policy, and what to type next.

    Of a run that is finished it shows what is there.
    """
    VideoFile.check(Path(_VIDEO))  # before the work, not after it
    command = _command(wanted.out)
    (path,) = run_folders(command)
    if wanted.out is None:
        check_default_place(path, f"--out {_FOLDER}")
    folder = RunFolder(path)
    finished = _is_finished(folder, command)
    if finished:
        console.print(f"{path} is complete ({command.options.agent_steps} agent steps)")
        console.print("to train again, remove that folder, or choose another: ogspr quickstart --out FOLDER")
    else:
        _announce(command, console)
        train(command, console)
    console.print("\nmean score of the evaluations:\n")
    for line in learning_curve(folder, command.options.agent.random_steps):
        console.print(line)
    console.print()
    video = folder.videos / _VIDEO
    if finished and video.exists():
        console.print(f"video       {video}")
    else:
        play(Play(path=path, episodes=4, grid=True, out=video), console)
    _say_what_is_next(path, command.preset, console)


def _command(out: Path | None) -> TrainCommand[Any]:
    gpu = torch.cuda.is_available()
    preset = DEFAULT_PRESET if gpu else SMALL
    options = preset_options(preset, TASK)
    if gpu:
        options = replace(options, agent_steps=_GPU_STEPS)
    return TrainCommand(options, task=TASK, preset=preset, out=out or _FOLDER)


def _is_finished(folder: RunFolder, command: TrainCommand[Any]) -> bool:
    """Whether the run in a folder is this one, and has nothing left to do."""
    try:
        run = open_run(folder.path, lambda _damage: None)
    except UserError:  # training will say what is wrong there, if it is not that there is no run yet
        return False
    options = replace(run.options, compute=command.options.compute)  # a run has noted what "auto" was
    same = (run.config.task, run.config.preset, options) == (command.task, command.preset, command.options)
    return same and run.finished


def _announce(command: TrainCommand[Any], console: Console) -> None:
    on_cpu, steps = command.preset == SMALL, command.options.agent_steps
    where = "the CPU" if on_cpu else torch.cuda.get_device_name()
    console.print(f"{TASK} from pixels on {where}: {steps} agent steps")
    length = "" if on_cpu else f" --agent-steps {steps}"
    console.print(f"the same as: ogspr train {TASK} --preset {command.preset}{length} --out {command.out}")


def _say_what_is_next(path: Path, preset: str, console: Console) -> None:
    console.print(f"run         {path}")
    if shutil.which("ogspr") is None:  # as after `make train`
        console.print(f"first       . {os.path.relpath(Path(sys.prefix) / 'bin' / 'activate')}")
    on_cpu = f" --preset {SMALL}" if preset == SMALL else ""
    console.print(f"next        ogspr tasks; ogspr train --help; ogspr train dmc:walker-walk{on_cpu}")
    console.print(f"            ogspr watch runs; ogspr play {path}; ogspr export {path} policy.safetensors")


def learning_curve(folder: RunFolder, random_steps: int) -> list[str]:
    """Lines of text; with the random policy, as far as it was seen in the first steps."""
    random_score = _random_policy(folder, random_steps)
    reference = None if random_score is None else ("random policy", random_score)
    return curve(mean_scores(folder.evaluation_table), reference)


def _random_policy(folder: RunFolder, random_steps: int) -> float | None:
    """The mean score of the episodes that were played at random, before the first update."""
    rows = [row for row in read_rows(folder.episode_table) if row["agent_steps"] <= random_steps]
    return fmean(row["score"] for row in rows) if rows else None
