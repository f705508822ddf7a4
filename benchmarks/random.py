"""`python -m benchmarks random`: scores of the uniformly random policy, the zero of normalised scores."""

from __future__ import annotations

import contextlib
import csv
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_type_hints

import numpy as np

from benchmarks.commands import Random
from benchmarks.harness import Report
from ogspr.envs import Environment, EnvOptions, gl, make
from ogspr.envs.dmc import DmcSource
from ogspr.envs.pixels import PixelEnvironment
from ogspr.envs.worker import InProcess
from ogspr.errors import UserError, require_positive
from ogspr.records.files import write_csv
from ogspr.reference import paper_scores
from ogspr.training.episodes import EpisodeDriver, RandomPolicy
from ogspr.types import UInt8Array

SHIPPED = Path(__file__).resolve().parent.parent / "ogspr" / "data" / "random_scores.csv"
_SHIPPED_COLUMNS = ("task", "mean", "standard_error", "episodes")
_SMALLEST_IMAGE = 1  # nobody looks


@dataclass(frozen=True)
class RandomScore:
    """The random policy on one task. The fields are the columns of the csv file."""

    task: str
    mean: float
    standard_error: float  # of the mean
    standard_deviation: float  # of an episode's score
    episodes: int
    seed: int
    action_repeat: int  # frames for which an action is held
    versions: str  # of the libraries that simulate


_COLUMNS = get_type_hints(RandomScore)  # name -> str, float or int


def paper_tasks() -> tuple[str, ...]:
    """The tasks of the paper: 28 of the DeepMind Control Suite, 26 Atari games."""
    return tuple(paper_scores())


def measure(wanted: Random, report: Report) -> list[RandomScore]:
    """The csv file is written after every task; the same call plays what is missing in it."""
    require_positive(episodes=wanted.episodes, processes=wanted.processes, action_repeat=wanted.action_repeat)
    if wanted.episodes == 1:
        raise UserError("one episode says nothing about the spread of scores; use at least 2.")
    if wanted.ship and report.out is None:
        raise UserError("--ship needs --out: the measured file that the shipped scores are taken from.")
    tasks = tuple(dict.fromkeys(wanted.tasks)) or paper_tasks()
    with report.console.status("building every environment once"):
        simulations = {task: _simulation(task, wanted.seed, wanted.action_repeat) for task in tasks}
    scores = _already_measured(report.out, wanted, simulations) if report.out is not None else {}
    missing = [task for task in tasks if task not in scores]
    for score in _measured(missing, wanted):
        scores[score.task] = score
        # No colon after the name: rich would show atari:Alien: with an emoji.
        report.console.print(f"{score.task} {score.mean:.2f} +- {score.standard_error:.2f}")
        # Sorted: which task is finished first is chance.
        report.save([asdict(scores[task]) for task in sorted(scores)], earlier_commands=True)
    headings = {"task": "task", "mean": "mean", "standard_error": "error", "standard_deviation": "deviation"}
    report.show([asdict(scores[task]) for task in tasks], {**headings, "episodes": "episodes"})
    if wanted.ship and report.out is not None:
        ship(report.out, SHIPPED)
        report.console.print(f"written to {SHIPPED}")
    return [scores[task] for task in tasks]


def ship(measured: Path, shipped: Path) -> None:
    """Makes the file that ships with the package: what reports need of the measured one."""
    with measured.open(encoding="utf-8", newline="") as file:
        rows = [[row[name] for name in _SHIPPED_COLUMNS] for row in csv.DictReader(file)]
    write_csv(shipped, _SHIPPED_COLUMNS, rows)


def random_score(task: str, episodes: int, seed: int, action_repeat: int | None = None) -> RandomScore:
    """Plays one task, with the actions that `ogspr rollout` takes for the same seed."""
    env = unseen(task, seed, action_repeat)
    with contextlib.closing(EpisodeDriver(RandomPolicy(env.spec.actions), [InProcess(env)])) as driver:
        found = [episode.score for episode in driver.play(episodes, np.random.default_rng(seed))]
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
    )


def unseen(task: str, seed: int, action_repeat: int | None = None) -> Environment:
    """`make(task)` where images do not matter: control tasks, whose images cost most, render none."""
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
    """A control task whose images stay black."""

    def draw(self) -> UInt8Array:
        return np.zeros(self.spec.frame_shape, np.uint8)


def _simulation(task: str, seed: int, action_repeat: int | None) -> tuple[int, str]:
    """How and by what a task is simulated; also finds misspelt names before anything is measured."""
    env = make(task, seed=seed, options=EnvOptions(action_repeat=action_repeat))
    env.close()
    return env.spec.action_repeat, _version_text(env)


def _version_text(env: Environment) -> str:
    return " ".join(f"{name}={number}" for name, number in env.spec.versions.items())


def _measured(tasks: Sequence[str], wanted: Random) -> Iterator[RandomScore]:
    """In the order in which they are finished."""
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")
    count = min(wanted.processes or os.cpu_count() or 1, len(tasks))
    settings = (wanted.episodes, wanted.seed, wanted.action_repeat)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_die_on_interrupt) as pool:
        jobs: list[Future[RandomScore]] = [pool.submit(random_score, task, *settings) for task in tasks]
        try:
            for job in as_completed(jobs):
                yield job.result()
        except BrokenProcessPool:
            raise UserError(
                "a process that played episodes was killed, perhaps because memory ran out; the same command "
                "plays what is missing, and fewer --processes need less."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _die_on_interrupt() -> None:
    """Ctrl-C reaches all processes: these end at once, and their parent does the rest."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _already_measured(
    path: Path, wanted: Random, simulations: Mapping[str, tuple[int, str]]
) -> dict[str, RandomScore]:
    """What an earlier call left in the file; refuses one with other settings."""
    if not path.exists() or not path.stat().st_size:
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != tuple(_COLUMNS):
            raise UserError(f"{path} was not written by this command; choose another file.")
        scores = [_score(row) for row in reader]
    for score in scores:
        simulated = (score.action_repeat, score.versions)
        found = (score.episodes, score.seed, *simulated)
        expected = (wanted.episodes, wanted.seed, *simulations.get(score.task, simulated))
        if found != expected:
            settings = "{} episodes, seed {}, actions held for {}, {}"
            raise UserError(
                f"{path} holds {score.task} with {settings.format(*found)}; "
                f"asked for {settings.format(*expected)}. Choose another file."
            )
    return {score.task: score for score in scores}


def _score(row: Mapping[str, str]) -> RandomScore:
    values: dict[str, Any] = {name: kind(row[name]) for name, kind in _COLUMNS.items()}
    return RandomScore(**values)
