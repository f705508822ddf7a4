"""`ogspr bench random`: scores of the uniformly random policy, the zero of every normalised score."""

from __future__ import annotations

import csv
import io
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from rich.console import Console
from rich.table import Table

from ogspr.envs import Environment, EnvOptions, gl, make
from ogspr.envs.dmc import DmcSource
from ogspr.envs.pixels import PixelEnvironment
from ogspr.errors import UserError, require_positive
from ogspr.records.files import check_csv, written_whole
from ogspr.reference import paper_scores
from ogspr.types import UInt8Array

EPISODES = 100
COLUMNS = (
    "task",
    "mean",
    "standard_error",
    "standard_deviation",
    "episodes",
    "seed",
    "action_repeat",
    "versions",
)
_SMALLEST_IMAGE = 1  # nobody looks


@dataclass(frozen=True)
class RandomScore:
    """The random policy on one task."""

    task: str
    mean: float
    standard_error: float  # of the mean
    standard_deviation: float  # of an episode's score
    episodes: int
    seed: int
    action_repeat: int  # frames for which an action is held
    versions: str  # of the libraries that simulate
    seconds: float | None = None  # None: measured earlier, and read from the file

    def cells(self) -> tuple[str, ...]:
        """A row of the csv file; seconds would make every file another one."""
        numbers = (f"{x:.6g}" for x in (self.mean, self.standard_error, self.standard_deviation))
        settings = (self.episodes, self.seed, self.action_repeat, self.versions)
        return (self.task, *numbers, *map(str, settings))


def paper_tasks() -> tuple[str, ...]:
    """The tasks of the paper: 28 of the DeepMind Control Suite, 26 Atari games."""
    return tuple(paper_scores())


def bench_random(
    tasks: Sequence[str] = (),
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    action_repeat: int | None = None,
    out: Path | None,
    console: Console,
    processes: int | None = None,
) -> list[RandomScore]:
    """Plays `episodes` episodes of every task (of the paper's, if none is named); prints a table.

    `action_repeat` is for how many frames an action is held; None: as the suite's protocol says.
    `out` is written after every task; the same call goes on with the tasks that are not in it yet.
    """
    require_positive(episodes=episodes, processes=processes, action_repeat=action_repeat)
    if episodes == 1:
        raise UserError("one episode says nothing about the spread of scores; use at least 2.")
    tasks = tuple(dict.fromkeys(tasks)) or paper_tasks()
    with console.status("building every environment once"):
        simulations = {task: _simulation(task, seed, action_repeat) for task in tasks}
    scores = _already_measured(out, episodes, seed, simulations) if out is not None else {}
    missing = [task for task in tasks if task not in scores]
    settings = (episodes, seed, action_repeat)
    for score in _measured(missing, settings, processes or os.cpu_count() or 1):
        scores[score.task] = score
        # No colon after the name: rich would show atari:Alien: with a picture of one.
        console.print(f"{score.task} {score.mean:.2f} +- {score.standard_error:.2f} in {score.seconds:.0f} s")
        if out is not None:
            _write(out, scores)
    console.print(_table([scores[task] for task in tasks]))
    if out is not None:
        console.print(f"written {out}")
    return [scores[task] for task in tasks]


def random_score(task: str, episodes: int, seed: int, action_repeat: int | None = None) -> RandomScore:
    """Plays one task, with the actions that `ogspr rollout` takes for the same seed."""
    start = time.perf_counter()
    env, rng = unseen(task, seed, action_repeat), np.random.default_rng(seed)
    try:
        found = [_play(env, rng) for _ in range(episodes)]
    finally:
        env.close()
    deviation = stdev(found)
    return RandomScore(
        task=task,
        mean=fmean(found),
        standard_error=deviation / math.sqrt(episodes),
        standard_deviation=deviation,
        episodes=episodes,
        seed=seed,
        action_repeat=env.spec.action_repeat,
        versions=_version_text(env),
        seconds=time.perf_counter() - start,
    )


def unseen(task: str, seed: int, action_repeat: int | None = None) -> Environment:
    """`make(task)` where the pictures do not matter: control tasks, whose pictures cost most, draw none."""
    suite, _, rest = task.partition(":")
    options = EnvOptions(action_repeat=action_repeat)
    if suite != "dmc":
        return make(task, seed=seed, options=options)
    domain, _, name = rest.partition("-")
    renderer = gl.activate().renderer
    return PixelEnvironment(
        _UndrawnSource(
            domain,
            name,
            seed=seed,
            options=replace(options, image_size=_SMALLEST_IMAGE),
            gl_renderer=renderer,
        )
    )


class _UndrawnSource(DmcSource):
    """A control task in all but its pictures, which stay black."""

    def draw(self) -> UInt8Array:
        return np.zeros(self.spec.frame_shape, np.uint8)


def _play(env: Environment, rng: np.random.Generator) -> float:
    step, score = env.reset(), 0.0
    while not step.last:
        step = env.step(env.spec.actions.sample(rng))
        score += step.score
    return score


def _simulation(task: str, seed: int, action_repeat: int | None) -> tuple[int, str]:
    """How and by what a task is simulated; also finds misspelt names before anything is measured."""
    env = make(task, seed=seed, options=EnvOptions(action_repeat=action_repeat))
    env.close()
    return env.spec.action_repeat, _version_text(env)


def _version_text(env: Environment) -> str:
    return " ".join(f"{name}={number}" for name, number in env.spec.versions.items())


def _measured(
    tasks: Sequence[str], settings: tuple[int, int, int | None], processes: int
) -> Iterator[RandomScore]:
    """The scores of the tasks, in the order in which they are ready."""
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")
    count = min(processes, len(tasks))
    with ProcessPoolExecutor(count, mp_context=context, initializer=_die_on_interrupt) as pool:
        jobs: list[Future[RandomScore]] = [pool.submit(random_score, task, *settings) for task in tasks]
        try:
            for job in as_completed(jobs):
                yield job.result()
        except BrokenProcessPool:
            raise UserError(
                "a process that played episodes was killed, perhaps for want of memory; the same command "
                "goes on with what is missing, fewer processes need less."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _die_on_interrupt() -> None:
    """Ctrl-C reaches all processes: these end at once and leave the rest to the one that started them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _already_measured(
    path: Path, episodes: int, seed: int, simulations: Mapping[str, tuple[int, str]]
) -> dict[str, RandomScore]:
    """What an earlier call left in the file; refuses one of other settings."""
    check_csv(path)
    if not path.exists() or not path.stat().st_size:
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UserError(f"{path} is no file of this command; choose another place.")
        scores = [_score(row) for row in reader]
    for score in scores:
        simulated = (score.action_repeat, score.versions)
        found = (score.episodes, score.seed, *simulated)
        expected = (episodes, seed, *simulations.get(score.task, simulated))
        if found != expected:
            settings = "{} episodes, seed {}, actions held for {}, {}"
            raise UserError(
                f"{path} holds {score.task} with {settings.format(*found)}; "
                f"asked for {settings.format(*expected)}. Choose another file."
            )
    return {score.task: score for score in scores}


def _score(row: Mapping[str, str]) -> RandomScore:
    return RandomScore(
        task=row["task"],
        mean=float(row["mean"]),
        standard_error=float(row["standard_error"]),
        standard_deviation=float(row["standard_deviation"]),
        episodes=int(row["episodes"]),
        seed=int(row["seed"]),
        action_repeat=int(row["action_repeat"]),
        versions=row["versions"],
    )


def _write(path: Path, scores: Mapping[str, RandomScore]) -> None:
    """Sorted: which task was ready first is chance."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [COLUMNS, *(scores[task].cells() for task in sorted(scores))]
    )
    written_whole(path, text.getvalue().encode())


def _table(scores: Sequence[RandomScore]) -> Table:
    table = Table("task", box=None, header_style="bold")
    for heading in ("mean", "error", "deviation", "episodes", "seconds"):
        table.add_column(heading, justify="right")
    for score in scores:
        table.add_row(
            score.task,
            f"{score.mean:.2f}",
            f"{score.standard_error:.2f}",
            f"{score.standard_deviation:.2f}",
            str(score.episodes),
            "" if score.seconds is None else f"{score.seconds:.0f}",
        )
    return table
