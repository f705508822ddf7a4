"""`ogspr quickstart`: a whole run that ends with something to look at."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console

from ogspr.commands.policy import play
from ogspr.commands.train import TrainCommand, run_folders, train
from ogspr.commands.video import VideoFile
from ogspr.records.curve import curve, mean_scores, read_rows
from ogspr.records.run import RunFolder
from ogspr.train.recipes import SMALL, recipe

TASK = "dmc:cartpole-swingup"
_GPU_STEPS = 30_000
_FOLDER = Path("runs") / "quickstart"
_FILM = "quickstart.mp4"  # the same again where `make train` runs again, not one more


def quickstart(out: Path | None, console: Console) -> None:
    """Trains the embedded default, then shows the curve, films the policy, and says what to type next."""
    VideoFile.check(Path(_FILM))  # before the work, not after it
    gpu = torch.cuda.is_available()
    preset = "ogspr" if gpu else SMALL
    options = recipe(preset, TASK)
    if gpu:
        options = replace(options, agent_steps=_GPU_STEPS)
    command = TrainCommand(options, task=TASK, preset=preset, out=out or _FOLDER)
    (path,) = run_folders(command)
    folder = RunFolder(path)
    where = torch.cuda.get_device_name() if gpu else "the CPU"
    console.print(f"{TASK} from pixels on {where}: {options.agent_steps} agent steps")
    steps = f" --agent-steps {options.agent_steps}" if gpu else ""
    console.print(f"the same as: ogspr train {TASK} --preset {preset}{steps} --out {command.out}")
    train(command, console)
    console.print("\nmean score of the evaluations:\n")
    for line in learning_curve(folder, options.agent.random_steps):
        console.print(line)
    console.print()
    play(
        path,
        policy="best",
        task=None,
        episodes=4,
        seed=1_000_000,
        grid=True,
        workers=True,
        out=folder.videos / _FILM,
        console=console,
    )
    console.print(f"run         {path}")
    if shutil.which("ogspr") is None:  # as after `make train`
        console.print(f"first       . {os.path.relpath(Path(sys.prefix) / 'bin' / 'activate')}")
    on_cpu = "" if gpu else " --preset small"
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
