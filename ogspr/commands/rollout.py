"""`ogspr rollout`: whole episodes of the uniform random policy, by the real environment loop."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.console import Console

from ogspr.commands.video import VideoFile
from ogspr.envs import EnvOptions, SplitStepEnvironment, launch
from ogspr.errors import UserError, require_positive
from ogspr.records.manifest import manifest, write_manifest
from ogspr.reference import METHOD, paper_scores
from ogspr.types import EnvSpec, TimeStep


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    score: float
    agent_steps: int
    frames: int
    ended: str  # terminated, truncated, or the fault that cut it
    seconds: float


def rollout(
    task: str,
    *,
    episodes: int,
    seed: int,
    worker: bool,
    options: EnvOptions,
    out: Path | None,
    video: Path | None,
    console: Console,
) -> list[Episode]:
    """Plays `episodes` episodes, prints and returns them; `out` and `video` also store them."""
    require_positive(episodes=episodes)
    recorder = VideoFile(video) if video is not None else None
    env = launch(task, seed=seed, options=options, worker=worker)
    done: list[Episode] = []
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_manifest(out, manifest(env.spec, policy="uniform random", episodes=episodes, seed=seed))
        _print_spec(env.spec, console)
        for number, episode in enumerate(_episodes(env, episodes, seed, recorder), start=1):
            done.append(episode)
            _print_episode(number, episode, console)
            if out is not None:
                _write_episodes(out / "episodes.csv", done)
    finally:
        env.close()
        if recorder is not None:
            recorder.close()
    _print_summary(task, done, console)
    for path in (out, video):
        if path is not None:
            console.print(f"written     {path}", highlight=False, markup=False, soft_wrap=True)
    return done


def _episodes(
    env: SplitStepEnvironment, count: int, seed: int, recorder: VideoFile | None
) -> Iterator[Episode]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        start = time.perf_counter()
        score, steps, frames = 0.0, 0, 0
        step = env.reset()
        while not step.last:
            if recorder is not None:
                recorder.add(_newest_frame(step, env.spec))
            step = env.step(env.spec.actions.sample(rng))
            score, steps, frames = score + step.score, steps + 1, frames + step.frames
        ended = step.fault or ("terminated" if step.terminated else "truncated")
        yield Episode(score, steps, frames, ended, time.perf_counter() - start)


def _newest_frame(step: TimeStep, spec: EnvSpec) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return step.observation[-spec.frame_shape[0] :]


def _print_spec(spec: EnvSpec, console: Console) -> None:
    protocol = " ".join(f"{key}={value}" for key, value in spec.protocol.items())
    versions = " ".join(f"{key}={value}" for key, value in spec.versions.items())
    console.print(f"environment {spec.name}, actions: {spec.actions}", highlight=False, markup=False)
    console.print(f"protocol    {protocol}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"versions    {versions}", highlight=False, markup=False, soft_wrap=True)


def _print_episode(number: int, episode: Episode, console: Console) -> None:
    speed = episode.agent_steps / episode.seconds
    console.print(
        f"episode {number:<3} score {episode.score:8.1f}   {episode.agent_steps} agent steps "
        f"({episode.frames} frames), {episode.ended}, {speed:.0f} agent steps a second",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _print_summary(task: str, episodes: list[Episode], console: Console) -> None:
    faults = sum(episode.ended not in ("terminated", "truncated") for episode in episodes)
    line = f"mean        score {fmean(episode.score for episode in episodes):8.1f}   random policy"
    if task in paper_scores():
        line += f"; {METHOD} reaches {paper_scores()[task]:.0f} in the paper"
    if faults:
        line += f"; {faults} of {len(episodes)} episodes cut by simulator faults"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _write_episodes(path: Path, episodes: list[Episode]) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["episode", "score", "agent_steps", "frames", "ended"])
            for number, episode in enumerate(episodes):
                writer.writerow([number, episode.score, episode.agent_steps, episode.frames, episode.ended])
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from None
