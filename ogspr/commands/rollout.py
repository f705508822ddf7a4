"""`ogspr rollout`: whole episodes of the uniform random policy, by the real environment loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.status import Status

from ogspr.commands.declared import Rollout
from ogspr.commands.video import VideoFile, recording_video
from ogspr.envs import EnvOptions, SplitStepEnvironment, launch
from ogspr.errors import require_positive
from ogspr.records.files import make_folder
from ogspr.records.run import manifest, write_manifest
from ogspr.records.tables import write_episodes
from ogspr.reference import METHOD, paper_scores
from ogspr.training.episodes import EpisodeDriver, RandomPolicy
from ogspr.types import Action, EnvSpec, Episode, TimeStep

_STATUS_STEPS = 20  # agent steps between two updates of the status line


def rollout(wanted: Rollout, console: Console) -> list[Episode]:
    """Plays whole episodes, prints and returns them; `out` and `video` also store them."""
    require_positive(episodes=wanted.episodes)
    seed, out, video = wanted.seed, wanted.out, wanted.video
    if video is not None:
        VideoFile.check(video)
    env = launch(wanted.task, seed=seed, options=wanted.env, worker=wanted.worker)
    done: list[Episode] = []
    with contextlib.closing(env), contextlib.ExitStack() as open_files:
        spec = env.spec  # waits until it is built: nothing is written for one that cannot be
        if out is not None:
            make_folder(out)
            about = manifest(spec, policy="uniform random", episodes=wanted.episodes, seed=seed)
            write_manifest(out, about)
        recorder = open_files.enter_context(recording_video(video)) if video is not None else None
        _print_spec(spec, console)
        with console.status("") as status:  # shown in terminals only
            for episode, seconds in _episodes(env, wanted, recorder, status):
                done.append(episode)
                _print_episode(len(done), episode, seconds, console)
                if out is not None:
                    write_episodes(out / "episodes.csv", done)
    _print_summary(wanted, done, console)
    for path in (out, video):
        if path is not None:
            console.print(f"written     {path}")
    return done


def _episodes(
    env: SplitStepEnvironment, wanted: Rollout, recorder: VideoFile | None, status: Status
) -> Iterator[tuple[Episode, float]]:
    """Each episode, and the seconds it took."""
    rng = np.random.default_rng(wanted.seed)
    most = f" of {env.spec.episode_steps}" if env.spec.episode_steps else ""
    faults: list[str] = []

    def see(_place: int, _action: Action | None, step: TimeStep) -> None:
        if step.fault:
            faults.append(step.fault)
        if recorder is not None:
            recorder.add(step.observation[-env.spec.frame_shape[0] :])

    driver = EpisodeDriver(RandomPolicy(env.spec.actions), [env], see)
    for number in range(1, wanted.episodes + 1):
        start = time.perf_counter()
        faults.clear()
        for agent_steps, _ in enumerate(driver.steps(1, rng)):
            if agent_steps % _STATUS_STEPS == 0:
                status.update(f"episode {number}: {agent_steps}{most} agent steps")
        (episode,) = driver.episodes()
        yield replace(episode, fault="; ".join(faults)), time.perf_counter() - start


def _print_spec(spec: EnvSpec, console: Console) -> None:
    console.print(f"environment {spec.name}, actions: {spec.actions}")
    console.print("protocol   ", *(f"{key}={value}" for key, value in spec.protocol.items()))
    console.print("versions   ", *(f"{key}={value}" for key, value in spec.versions.items()))
    if spec.renderer:
        console.print(f"rendered by {spec.renderer}")


def _print_episode(number: int, episode: Episode, seconds: float, console: Console) -> None:
    speed = episode.agent_steps / seconds
    line = (
        f"episode {number:<3} score {episode.score:8.1f}   {episode.agent_steps} agent steps "
        f"({episode.frames} frames), {episode.ended}, {speed:.0f} agent steps a second"
    )
    console.print(f"{line}; simulator fault: {episode.fault}" if episode.fault else line)


def _print_summary(wanted: Rollout, episodes: list[Episode], console: Console) -> None:
    faults = sum(bool(episode.fault) for episode in episodes)
    line = f"mean        score {fmean(episode.score for episode in episodes):8.1f}   random policy"
    if wanted.env == EnvOptions() and wanted.task in paper_scores():
        line += f"; {METHOD} reaches {paper_scores()[wanted.task]:.0f} in the paper"
    if faults:
        line += f"; simulator faults in {faults} of {len(episodes)} episodes"
    console.print(line)
