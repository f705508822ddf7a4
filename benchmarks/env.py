"""`python -m benchmarks env`: this package's environments next to the usual ways of running the same task.

Every contender lives in a process of its own, because two GL libraries do not share one well. Only ratios
within one run mean anything. No torch: these processes do without.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.util import Finalize
from statistics import median
from typing import Any

import numpy as np

from benchmarks.commands import Env
from benchmarks.harness import Report, hardware, in_turns
from ogspr.envs import EnvOptions, SplitStepEnvironment, dmc, launch
from ogspr.envs.gym_view import GymView
from ogspr.errors import UserError, require_positive
from ogspr.types import UInt8Array

OURS = "ogspr in-process"
WORKER = "ogspr worker"
_WORKERS = 10  # as in an evaluation
WORKERS = f"ogspr, {_WORKERS} workers at a time"
DM_CONTROL = "dm_control physics.render"
GYM_ATARI = "gymnasium AtariPreprocessing"
ASYNC_VECTOR = "gymnasium AsyncVectorEnv"
DRAW = "ogspr draw only"
DRAW_WITHOUT_SHADOWS = "ogspr draw only, no shadows"
DM_CONTROL_DRAW = "dm_control draw only"


@dataclass(frozen=True)
class EnvResult:
    """The median round of one contender on one task."""

    task: str
    contender: str
    per_second: float
    milliseconds: float
    ratio: float  # the baseline contender's time over this one's: above 1 is faster


def measure(wanted: Env, report: Report) -> list[EnvResult]:
    require_positive(steps=wanted.steps, rounds=wanted.rounds)
    if not wanted.tasks:
        raise UserError("name at least one environment, for example dmc:cheetah-run.")
    for task in wanted.tasks:  # finds misspelt names before anything is measured
        launch(task, seed=0, worker=False).close()
    report.begin(hardware(renders=True))
    results: list[EnvResult] = []
    for task in wanted.tasks:
        with report.console.status(f"measuring {task}"):
            found = measure_task(task, wanted.steps, wanted.rounds)
        results += found
        headings = {"contender": "contender", "per_second": "per second", "milliseconds": "ms"}
        report.show([asdict(result) for result in found], {**headings, "ratio": "ratio"}, task)
        report.save([asdict(result) for result in results])
    return results


def measure_task(task: str, steps: int, rounds: int) -> list[EnvResult]:
    results = []
    for group in _groups(task):
        with served(task, group) as children:
            # Of a round, seconds per step.
            blocks = {child.name: partial(child.measure, steps=steps) for child in children}
            per_step = {name: median(found) for name, found in in_turns(blocks, rounds).items()}
        results += [
            EnvResult(task, name, 1 / value, 1000 * value, per_step[group[0]] / value)
            for name, value in per_step.items()
        ]
    return results


class Child:
    """A contender in a process of its own."""

    def __init__(self, name: str, task: str) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_build, initargs=(name, task))
        self.close = self._pool.shutdown
        self.begin()  # starts the process

    def begin(self, *, steps: int = 0, seconds: float = 0.0) -> None:
        """Lets it run that many steps, or for that long."""
        with self._failing():
            self._answer = self._pool.submit(_run, steps, seconds)

    def result(self) -> float:
        """The seconds that a step took."""
        with self._failing():
            return self._answer.result()

    def measure(self, *, steps: int) -> float:
        self.begin(steps=steps)
        return self.result()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"the contender '{self.name}' failed: {reason}") from None


@contextlib.contextmanager
def served(task: str, names: Sequence[str]) -> Iterator[list[Child]]:
    with contextlib.ExitStack() as closing:
        yield [closing.enter_context(contextlib.closing(Child(name, task))) for name in names]


_built: list[Contender] = []  # in the process of a child


def _build(name: str, task: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    _built.append(_BUILDERS[name](task))
    Finalize(None, _built[0].close, exitpriority=0)


def _run(steps: int, seconds: float) -> float:
    (contender,) = _built
    start, done = time.perf_counter(), steps
    contender.run(steps)
    while time.perf_counter() - start < seconds:
        contender.run(1)
        done += 1
    return (time.perf_counter() - start) / max(done, 1)


@dataclass(frozen=True)
class Contender:
    """Something that can be timed, in its own process."""

    run: Callable[[int], None]  # this many agent steps, or frames
    close: Callable[[], None] = lambda: None


def _groups(task: str) -> list[tuple[str, ...]]:
    """The contenders of a task in groups that can be compared; the first of each is the baseline."""
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
    """Counts the steps of all workers."""
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


def _draw(task: str, shadows: bool | None = None) -> Contender:
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

    env = AsyncVectorEnv([partial(_WithoutInfo, task)], context="spawn")
    env.action_space.seed(0)
    env.reset(seed=0)

    def run(steps: int) -> None:
        for _ in range(steps):  # it resets by itself
            env.step(env.action_space.sample())

    return Contender(run, env.close)


class _WithoutInfo(GymView):
    """Gymnasium's vectors would collect `info`: what is compared is how a step travels."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8Array, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {}

    def step(self, action: Any) -> tuple[UInt8Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {}


_BUILDERS: dict[str, Callable[[str], Contender]] = {
    OURS: _ours,
    WORKER: _worker,
    WORKERS: _workers,
    DM_CONTROL: _dm_control,
    GYM_ATARI: _gymnasium_atari,
    ASYNC_VECTOR: _async_vector,
    DRAW: _draw,
    DRAW_WITHOUT_SHADOWS: partial(_draw, shadows=False),
    DM_CONTROL_DRAW: _dm_control_draw,
}
