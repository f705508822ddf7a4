"""`ogspr eval`, `ogspr play`, `ogspr export`: what a trained policy can be used for."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from rich.console import Console
from rich.filesize import decimal

from ogspr.commands.declared import Eval, Export, Play, Probe
from ogspr.commands.video import VideoFile, recording_video
from ogspr.device import prepared_device
from ogspr.envs import EnvOptions, ResilientEnvironment, launch, trusted_task
from ogspr.errors import UserError, require_positive
from ogspr.records.files import check_writable
from ogspr.records.run import RunFolder
from ogspr.records.tables import write_episodes
from ogspr.training.episodes import EpisodeDriver
from ogspr.training.evaluation import Evaluation, PolicySnapshot
from ogspr.training.policy_file import SavedPolicy, find_policy, load_policy, save_policy
from ogspr.types import Action, TimeStep, UInt8Array

_SIDE_BY_SIDE = 10  # environments, at most


@dataclass(frozen=True)
class Source:
    """A policy, and the environment it was trained in."""

    path: Path
    saved: SavedPolicy
    task: str
    options: EnvOptions

    @property
    def text(self) -> str:
        origin = self.saved.origin
        return f"{self.path}: {self.task}, seed {origin.get('seed')}, agent step {origin.get('agent_steps')}"


def evaluate(wanted: Eval, console: Console) -> Evaluation:
    """Plays whole episodes as in evaluation; prints every score, writes them as csv."""
    require_positive(episodes=wanted.episodes)
    source = open_source(wanted.path, wanted)
    if wanted.out is not None:
        check_writable(wanted.out)
    console.print(source.text)
    evaluation = _evaluation(source, wanted)
    for number, episode in enumerate(evaluation.episodes, start=1):
        fault = f"; simulator fault: {episode.fault}" if episode.fault else ""
        console.print(
            f"episode {number:<3} score {episode.score:8.1f}   {episode.agent_steps} agent steps, "
            f"{episode.ended}{fault}"
        )
    scores = [episode.score for episode in evaluation.episodes]
    spread = f" +- {stdev(scores):.1f} (standard deviation)" if len(scores) > 1 else ""
    console.print(f"mean        score {fmean(scores):8.1f}{spread}")
    if wanted.out is not None:
        write_episodes(wanted.out, evaluation.episodes)
        console.print(f"written     {wanted.out}")
    return evaluation


def play(wanted: Play, console: Console) -> Path:
    """Records full episodes: one after the other, or side by side as tiles of one image.

    Only a video that `out` names is replaced: without it, no existing video may be lost.
    """
    require_positive(episodes=wanted.episodes)
    source = open_source(wanted.path, wanted)
    video = wanted.out if wanted.out is not None else _default_video(wanted)
    VideoFile.check(video)
    console.print(source.text)
    with recording_video(video, keep_existing=wanted.out is None) as recorder:
        scores = _film(source, wanted, recorder)
    console.print(f"scores      {', '.join(f'{score:.1f}' for score in scores)}")
    console.print(f"written     {recorder.path}")
    return recorder.path


def export(wanted: Export, console: Console) -> None:
    """Writes the policy of a run to a file: weights of encoder and policy, nothing else."""
    saved, out = load_policy(find_policy(wanted.path, wanted.policy)), wanted.out
    if out.suffix != ".safetensors":
        raise UserError(f"a policy file must end in .safetensors, got {out.name}.")
    save_policy(out, saved)
    about = ", ".join(f"{name.replace('_', ' ')} {_brief(value)}" for name, value in saved.origin.items())
    console.print(f"written     {out} ({decimal(out.stat().st_size)}): {about}")
    console.print(f"use it      agent = ogspr.load({str(out)!r}); action = agent.act(observation)")


def _brief(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def open_source(path: Path, wanted: Eval | Play | Probe) -> Source:
    file = find_policy(path, wanted.policy)
    saved = load_policy(file)
    task = trusted_task(saved.origin["task"], wanted.task, file, "--task {}")
    return Source(file, saved, task, saved.env_options)


def _evaluation(source: Source, wanted: Eval) -> Evaluation:
    start = partial(launch, source.task, options=source.options, worker=wanted.workers)
    environments = [
        ResilientEnvironment(partial(start, seed=wanted.seed + place), lambda _line: None)
        for place in range(min(wanted.episodes, _SIDE_BY_SIDE))
    ]
    with contextlib.closing(EpisodeDriver(source.saved.build(prepared_device()), environments)) as driver:
        played = driver.play(wanted.episodes, np.random.default_rng((wanted.seed, 0)))
    return Evaluation(PolicySnapshot(0, 0, source.saved.weights), tuple(played))


def _film(source: Source, wanted: Play, recorder: VideoFile) -> list[float]:
    """Episodes with their own seeds: one after the other, or as tiles of one image.

    In a grid, an episode that is over stands still until the last one is.
    """
    policy = source.saved.build(prepared_device())
    channels = source.saved.spec.frame_shape[0]
    scores: list[float] = []
    seeds = range(wanted.seed, wanted.seed + wanted.episodes)
    for group in [seeds] if wanted.grid else [[seed] for seed in seeds]:
        columns = int(np.ceil(np.sqrt(len(group))))
        frames: list[UInt8Array] = [np.zeros(0, np.uint8)] * len(group)

        def see(
            place: int, _action: Action | None, step: TimeStep, frames: list[UInt8Array] = frames
        ) -> None:
            frames[place] = step.observation[-channels:]

        environments = [
            launch(source.task, seed=seed, options=source.options, worker=wanted.workers) for seed in group
        ]
        with contextlib.closing(EpisodeDriver(policy, environments, see)) as driver:
            for _ in driver.steps(len(group), np.random.default_rng(group[0])):
                recorder.add(_tiled(frames, columns))
            scores += [episode.score for episode in driver.episodes()]
    return scores


def _tiled(frames: Sequence[UInt8Array], columns: int) -> UInt8Array:
    missing = -len(frames) % columns
    tiles = [*frames, *([np.zeros_like(frames[0])] * missing)]
    rows = [np.concatenate(tiles[place : place + columns], 2) for place in range(0, len(tiles), columns)]
    return np.concatenate(rows, 1)


def _default_video(wanted: Play) -> Path:
    path = wanted.path
    return RunFolder(path).videos / f"{wanted.policy}.mp4" if path.is_dir() else path.with_suffix(".mp4")
