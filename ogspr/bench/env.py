"""`ogspr bench env`: this package's environments beside the usual ways of running the same task.

Every contender lives in a process of its own (two GL libraries do not share one well) and all take
turns, so that what disturbs the machine disturbs everyone. Only ratios within one run mean anything.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ogspr.envs import EnvOptions, SplitStepEnvironment, dmc, gl, launch
from ogspr.errors import UserError, require_positive
from ogspr.records.files import check_csv, write_csv
from ogspr.records.manifest import code_version

OURS = "ogspr in-process"
WORKER = "ogspr worker"
_WORKERS = 10  # as an evaluation plays
WORKERS = f"ogspr, {_WORKERS} workers at a time"
DM_CONTROL = "dm_control physics.render"
GYM_ATARI = "gymnasium AtariPreprocessing"
ASYNC_VECTOR = "gymnasium AsyncVectorEnv"
DRAW = "ogspr draw only"
DRAW_WITHOUT_SHADOWS = "ogspr draw only, no shadows"
DM_CONTROL_DRAW = "dm_control draw only"
_CLOSE_SECONDS = 10


@dataclass(frozen=True)
class Result:
    """The median round of one contender on one task."""

    task: str
    contender: str
    per_second: float
    milliseconds: float
    ratio: float  # the baseline contender's time over this one's: above 1 is faster


def bench_env(
    tasks: Sequence[str], *, steps: int, rounds: int, out: Path | None, console: Console
) -> list[Result]:
    """Measures every task; prints a table and writes it as csv."""
    require_positive(steps=steps, rounds=rounds)
    if not tasks:
        raise UserError("name at least one environment, for example: ogspr bench env dmc:cheetah-run")
    if out is not None:
        check_csv(out)
    for task in tasks:  # a misspelt name is found before anything is measured
        launch(task, seed=0, worker=False).close()
    hardware = _hardware()
    console.print(hardware)
    results = []
    for task in tasks:
        with console.status(f"measuring {task}"):
            found = _measure_task(task, steps, rounds)
        results += found
        console.print(_table(task, found))
        if out is not None:  # after each task: what is measured is not lost with the next one
            _write_results(out, results, hardware)
    if out is not None:
        console.print(f"written {out}")
    return results


@dataclass(frozen=True)
class Contender:
    """Something that can be timed, in its own process."""

    run: Callable[[int], None]  # so many agent steps, or frames
    close: Callable[[], None] = lambda: None


def _groups(task: str) -> list[tuple[str, ...]]:
    """The contenders of a task in comparable groups, the first of a group being the baseline."""
    suite = task.partition(":")[0]
    if suite == "dmc":
        return [
            (DM_CONTROL, OURS, WORKER, WORKERS, ASYNC_VECTOR),
            (DM_CONTROL_DRAW, DRAW, DRAW_WITHOUT_SHADOWS),
        ]
    if suite == "atari":
        return [(GYM_ATARI, OURS, WORKER, ASYNC_VECTOR)]
    return [(OURS, WORKER, ASYNC_VECTOR)]


def _ours(task: str) -> Contender:
    return _environment_contender(launch(task, seed=0, worker=False))


def _worker(task: str) -> Contender:
    return _environment_contender(launch(task, seed=0, worker=True))


def _workers(task: str) -> Contender:
    """Steps of all workers count: with cores and a GPU of their own they take a tenth of the time."""
    envs = [launch(task, seed=seed, worker=True) for seed in range(_WORKERS)]
    rng = np.random.default_rng(0)
    for env in envs:
        env.reset()

    def run(steps: int) -> None:
        for done in range(0, steps, _WORKERS):
            playing = envs[: steps - done]
            for env in playing:
                env.begin_step(env.spec.actions.sample(rng))
            for env in playing:
                if env.finish_step().last:
                    env.reset()

    def close() -> None:
        for env in envs:
            env.close()

    return Contender(run, close)


def _environment_contender(env: SplitStepEnvironment) -> Contender:
    rng = np.random.default_rng(0)
    step = env.reset()

    def run(steps: int) -> None:
        nonlocal step
        for _ in range(steps):
            step = env.reset() if step.last else env.step(env.spec.actions.sample(rng))

    return Contender(run, env.close)


def _dm_control(task: str) -> Contender:
    """The usual wrapper: two steps, then `physics.render`, and a stack of three frames."""
    env, camera = _dm_control_environment(task)
    spec, rng = env.action_spec(), np.random.default_rng(0)
    frames: deque[Any] = deque(maxlen=3)

    def run(steps: int) -> None:
        for _ in range(steps):
            action = rng.uniform(spec.minimum, spec.maximum)
            for _ in range(2):
                env.step(action)
            frames.append(env.physics.render(84, 84, camera).transpose(2, 0, 1))
            np.concatenate(list(frames))

    return Contender(run, env.close)


def _dm_control_draw(task: str) -> Contender:
    env, camera = _dm_control_environment(task)

    def run(frames: int) -> None:
        for _ in range(frames):
            env.physics.render(84, 84, camera)

    return Contender(run, env.close)


def _dm_control_environment(task: str) -> tuple[Any, int]:
    from dm_control import suite

    logging.getLogger("absl").setLevel(logging.ERROR)
    domain, _, name = task.removeprefix("dmc:").partition("-")
    env = suite.load(domain, name, task_kwargs={"random": 0})
    env.reset()
    return env, dmc.camera_for(domain, None, env.physics.model.ncam)


def draw_contender(task: str, shadows: bool | None = None) -> Contender:
    source = dmc.make_source(task.removeprefix("dmc:"), 0, EnvOptions(shadows=shadows))
    source.reset()

    def run(frames: int) -> None:
        for _ in range(frames):
            source.draw()

    return Contender(run, source.close)


def _gymnasium_atari(task: str) -> Contender:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    game = task.removeprefix("atari:")
    raw = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    stacked: Any = gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.AtariPreprocessing(raw), 4)
    stacked.action_space.seed(0)
    stacked.reset(seed=0)

    def run(steps: int) -> None:
        for _ in range(steps):
            _, _, terminated, truncated, _ = stacked.step(stacked.action_space.sample())
            if terminated or truncated:
                stacked.reset()

    return Contender(run, stacked.close)


def _async_vector(task: str) -> Contender:
    """One environment of ours behind gymnasium's own worker process."""
    from gymnasium.vector import AsyncVectorEnv

    from ogspr.bench.adapter import GymnasiumAdapter

    env = AsyncVectorEnv([partial(GymnasiumAdapter, task)], context="spawn")
    env.action_space.seed(0)
    env.reset(seed=0)

    def run(steps: int) -> None:
        for _ in range(steps):  # it resets by itself
            env.step(env.action_space.sample())

    return Contender(run, env.close)


_BUILDERS: dict[str, Callable[[str], Contender]] = {
    OURS: _ours,
    WORKER: _worker,
    WORKERS: _workers,
    DM_CONTROL: _dm_control,
    GYM_ATARI: _gymnasium_atari,
    ASYNC_VECTOR: _async_vector,
    DRAW: draw_contender,
    DRAW_WITHOUT_SHADOWS: partial(draw_contender, shadows=False),
    DM_CONTROL_DRAW: _dm_control_draw,
}


def _measure_task(task: str, steps: int, rounds: int) -> list[Result]:
    results = []
    for group in _groups(task):
        times = _take_turns(task, group, steps, rounds)
        per_step = {name: median(seconds) / steps for name, seconds in times.items()}
        results += [
            Result(task, name, 1 / value, 1000 * value, per_step[group[0]] / value)
            for name, value in per_step.items()
        ]
    return results


def _take_turns(task: str, names: Sequence[str], steps: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round for each contender; the first round is warm-up and left out."""
    context = multiprocessing.get_context("spawn")
    children: dict[str, tuple[Any, Any]] = {}
    try:
        for name in names:
            ours, theirs = context.Pipe()
            child = context.Process(target=_serve, args=(name, task, theirs))
            child.start()
            theirs.close()
            children[name] = (child, ours)
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds + 1):
            for name, (_, pipe) in children.items():
                seconds = _timed(name, pipe, steps)
                if turn > 0:
                    times[name].append(seconds)
        return times
    finally:
        for child, pipe in children.values():
            pipe.close()
            child.join(_CLOSE_SECONDS)
            child.kill()


def _timed(name: str, pipe: Any, steps: int) -> float:
    try:
        pipe.send(steps)
        seconds: float = pipe.recv()
    except (EOFError, OSError):
        raise UserError(f"the contender '{name}' failed; its message is above.") from None
    return seconds


def _serve(name: str, task: str, pipe: Any) -> None:
    """A contender's process: runs blocks of steps and says how long each took."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    contender = _BUILDERS[name](task)
    while True:
        try:
            steps = pipe.recv()
        except EOFError:
            break
        start = time.perf_counter()
        contender.run(steps)
        pipe.send(time.perf_counter() - start)
    contender.close()


def _hardware() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, {hardware_that_draws()}, {code_version()}"


def hardware_that_draws() -> str:
    decided = gl.decided()
    return f"{decided.renderer} ({decided.name})" if decided else "no OpenGL used"


def _table(task: str, results: list[Result]) -> Table:
    table = Table(title=task, box=None, title_justify="left", header_style="bold")
    table.add_column("contender", overflow="fold")
    for heading in ("a second", "ms", "ratio"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.contender, f"{result.per_second:.1f}", f"{result.milliseconds:.3f}", f"{result.ratio:.2f}"
        )
    return table


def _write_results(path: Path, results: list[Result], hardware: str) -> None:
    header = ("task", "contender", "per_second", "milliseconds", "ratio", "hardware")
    rows = [
        (
            result.task,
            result.contender,
            f"{result.per_second:.2f}",
            f"{result.milliseconds:.4f}",
            f"{result.ratio:.3f}",
            hardware,
        )
        for result in results
    ]
    write_csv(path, header, rows)
