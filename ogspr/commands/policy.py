"""`ogspr eval`, `ogspr play`, `ogspr export`: what a trained policy can be used for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

import numpy as np
from rich.console import Console
from rich.filesize import decimal

from ogspr.agents.protocol import Policy
from ogspr.commands.video import VideoFile, filming
from ogspr.envs import EnvOptions, ResilientEnvironment, SplitStepEnvironment, launch, trusted_task
from ogspr.errors import UserError, require_positive
from ogspr.records.episodes import write_episodes
from ogspr.records.files import check_writable
from ogspr.records.run import RunFolder
from ogspr.train.device import ready_device
from ogspr.train.evaluation import Evaluation, Evaluator, Occasion
from ogspr.train.policy_file import SavedPolicy, find_policy, load_policy, save_policy
from ogspr.types import TimeStep, UInt8Array

Which = Literal["best", "last"]
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


def evaluate(
    path: Path,
    *,
    policy: Which,
    task: str | None,
    episodes: int,
    seed: int,
    workers: bool,
    out: Path | None,
    console: Console,
) -> Evaluation:
    """Plays whole episodes as in evaluation; prints every score, writes them as csv."""
    require_positive(episodes=episodes)
    source = open_source(path, policy, task)
    if out is not None:
        check_writable(out)
    console.print(source.text)
    evaluation = _evaluation(source, episodes, seed, workers)
    for number, episode in enumerate(evaluation.episodes, start=1):
        fault = f"; simulator fault: {episode.fault}" if episode.fault else ""
        console.print(
            f"episode {number:<3} score {episode.score:8.1f}   {episode.agent_steps} agent steps, "
            f"{episode.ended}{fault}"
        )
    scores = [episode.score for episode in evaluation.episodes]
    spread = f" +- {stdev(scores):.1f} (standard deviation)" if len(scores) > 1 else ""
    console.print(f"mean        score {fmean(scores):8.1f}{spread}")
    if out is not None:
        write_episodes(out, evaluation.episodes)
        console.print(f"written     {out}")
    return evaluation


def play(
    path: Path,
    *,
    policy: Which,
    task: str | None,
    episodes: int,
    seed: int,
    grid: bool,
    workers: bool,
    out: Path | None,
    console: Console,
) -> Path:
    """Films whole episodes: one after the other, or side by side as tiles of one picture.

    Only a film that `out` names is replaced: who names none did not ask for the loss of one.
    """
    require_positive(episodes=episodes)
    source = open_source(path, policy, task)
    video = out if out is not None else _default_video(path, policy)
    VideoFile.check(video)
    console.print(source.text)
    acting = source.saved.made(ready_device())
    start = partial(launch, source.task, options=source.options, worker=workers)
    players = [_episode(acting, start, seed + number) for number in range(episodes)]
    film = _film_grid if grid else _film_in_turn
    with filming(video, beside_others=out is None) as recorder:
        scores = film(players, source.saved.spec.frame_shape[0], recorder)
    console.print(f"scores      {', '.join(f'{score:.1f}' for score in scores)}")
    console.print(f"written     {recorder.path}")
    return recorder.path


def export(path: Path, *, policy: Which, out: Path, console: Console) -> None:
    """Writes the policy of a run to a file: weights of encoder and policy, nothing else."""
    saved = load_policy(find_policy(path, policy))
    if out.suffix != ".safetensors":
        raise UserError(f"a policy file must end in .safetensors, got {out.name}.")
    save_policy(out, saved)
    about = ", ".join(f"{name.replace('_', ' ')} {_brief(value)}" for name, value in saved.origin.items())
    console.print(f"written     {out} ({decimal(out.stat().st_size)}): {about}")
    console.print(f"use it      agent = ogspr.load({str(out)!r}); action = agent.act(observation)")


def _brief(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def open_source(path: Path, which: str, task: str | None) -> Source:
    file = find_policy(path, which)
    saved = load_policy(file)
    return Source(file, saved, trusted_task(saved.origin["task"], task, file, "--task {}"), saved.env_options)


def _evaluation(source: Source, episodes: int, seed: int, workers: bool) -> Evaluation:
    start = partial(launch, source.task, options=source.options, worker=workers)
    environments = [
        ResilientEnvironment(partial(start, seed=seed + place), lambda _line: None)
        for place in range(min(episodes, _SIDE_BY_SIDE))
    ]
    evaluator = Evaluator(source.saved.made(ready_device()), environments, episodes, seed)
    try:
        evaluator.begin(Occasion(0, 0, source.saved.weights))
        while True:
            result = evaluator.advance(wait=True)
            if result is not None:
                return result
    finally:
        evaluator.close()


def _episode(policy: Policy, start: Callable[..., SplitStepEnvironment], seed: int) -> Iterator[TimeStep]:
    """One episode, the reset's time step first; its environment lives as long."""
    env, rng = start(seed=seed), np.random.default_rng(seed)
    try:
        step = env.reset()
        yield step
        while not step.last:
            step = env.step(policy.act(step.observation, rng))
            yield step
    finally:
        env.close()


def _film_in_turn(players: Sequence[Iterator[TimeStep]], channels: int, recorder: VideoFile) -> list[float]:
    scores = []
    for player in players:
        scores.append(0.0)
        for step in player:
            scores[-1] += step.score
            recorder.add(step.observation[-channels:])
    return scores


def _film_grid(players: Sequence[Iterator[TimeStep]], channels: int, recorder: VideoFile) -> list[float]:
    """Tiles; an episode that is over stands still until the last one is."""
    columns = int(np.ceil(np.sqrt(len(players))))
    steps = [next(player) for player in players]
    scores = [0.0] * len(players)
    while True:
        recorder.add(_tiled([step.observation[-channels:] for step in steps], columns))
        if all(step.last for step in steps):
            return scores
        for place, player in enumerate(players):
            if not steps[place].last:
                steps[place] = next(player)
                scores[place] += steps[place].score


def _tiled(frames: Sequence[UInt8Array], columns: int) -> UInt8Array:
    missing = -len(frames) % columns
    tiles = [*frames, *([np.zeros_like(frames[0])] * missing)]
    rows = [np.concatenate(tiles[place : place + columns], 2) for place in range(0, len(tiles), columns)]
    return np.concatenate(rows, 1)


def _default_video(path: Path, which: str) -> Path:
    return RunFolder(path).videos / f"{which}.mp4" if path.is_dir() else path.with_suffix(".mp4")
