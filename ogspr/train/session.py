"""A training process: one run for each seed, side by side on one device, saved and resumed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ogspr.agents.methods import method_of
from ogspr.agents.protocol import AgentConfig
from ogspr.envs import InexactState, ResilientEnvironment, WorkerDied, launch
from ogspr.errors import SnapshotError, UserError
from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.display import resident_bytes
from ogspr.records.manifest import add_to_manifest, manifest, write_manifest
from ogspr.records.run import RunFolder
from ogspr.records.sinks import Sink, TensorBoard, Trackio, WeightsAndBiases
from ogspr.records.structure import differences, plain
from ogspr.train.evaluation import Evaluation, Evaluator
from ogspr.train.execution import Execution, default_execution
from ogspr.train.generators import generator_states, seed_generators, set_generator_states
from ogspr.train.journal import Journal
from ogspr.train.learner import Diverged, Learner, LearnerSettings, make_learners
from ogspr.train.memory import keep_freed_memory
from ogspr.train.options import TrainOptions, decisive
from ogspr.train.policies import make_policy
from ogspr.train.run_records import RunRecords
from ogspr.train.signals import StopRequest
from ogspr.train.state_file import as_arrays, as_tensors
from ogspr.train.trainer import Schedule, Trainer
from ogspr.types import EnvSpec

CONFIG_FORMAT = 1
_LARGEST_REPLAY = 1_000_000
_CORES_FOR_OVERLAP = 8
_ENV_SEEDS = 0x0E57  # so that environments and networks of a seed share no random numbers


@dataclass(frozen=True)
class Request:
    """What a user asked for."""

    task: str
    preset: str
    seeds: tuple[int, ...]
    options: TrainOptions[Any]
    folders: tuple[Path, ...]  # one for each seed
    allow_changes: bool = False  # go on with a run although its settings differ


class Audience:
    """Whoever watches a session; this one looks away."""

    def line(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def evaluation(self, seed: int, evaluation: Evaluation, best: bool) -> None: ...

    def round(self, runs: Sequence[Run]) -> None:
        """After every round; called very often."""


@dataclass
class Run:
    """One seed."""

    seed: int
    folder: RunFolder
    learner: Learner
    trainer: Trainer
    records: RunRecords
    checkpoints: Checkpoints
    journal: Journal
    agent_steps: int  # in all
    noted: dict[str, float] = field(default_factory=dict)  # the row of the log that system.csv knows of

    def save(self) -> None:
        """A checkpoint of the state between two rounds."""
        pieces = self.journal.extend(self.learner)
        state: dict[str, Any] = {
            "learner": as_arrays(self.learner.state_dict()),
            "replay": as_arrays(self.learner.replay_state_dict()),
            "trainer": self.trainer.state_dict(),
            "generators": generator_states(),
            "tables": self.records.sizes(),
        }
        self.checkpoints.save(self.trainer.progress.agent_steps, state, pieces)


class Session:
    """Opens the runs of a request, trains them, and closes them again."""

    def __init__(self, request: Request, audience: Audience, stop: StopRequest) -> None:
        self._request = request
        self._audience = audience
        self._stop = stop
        self._device = _device(request.options.compute.device)
        self._execution = _execution(request.options, self._device)
        self._folders = [RunFolder(path) for path in request.folders]
        self.failed: list[str] = []  # runs that could not go on
        self._began = time.monotonic()

    def run(self) -> list[Run]:
        """Trains until everything is done; the runs as they ended. Stopped, if somebody asked for it."""
        if self._device.type == "cpu":
            keep_freed_memory()
        if self._request.options.compute.threads is not None:
            torch.set_num_threads(self._request.options.compute.threads)
        with contextlib.ExitStack() as self._closing:
            with self._stop.at_once():
                runs = self._open()
            self._train(runs)
        return runs

    # --- the loop -------------------------------------------------------------------------------

    def _train(self, runs: list[Run]) -> None:
        active = [run for run in runs if not run.trainer.finished]
        clock = _Clock(60.0 * self._request.options.keep.checkpoint_minutes)
        while active:
            for half in (Trainer.begin_round, Trainer.finish_round):
                active = [run for run in active if self._survives(run, half)]
            self._note_system(active)
            self._audience.round(runs)
            if self._stop.heard or clock.due():
                for run in active:
                    run.save()
                self._stop.obey()
            for run in [run for run in active if run.trainer.finished]:
                run.save()
                active.remove(run)

    def _note_system(self, runs: Sequence[Run]) -> None:
        for run in runs:
            row = run.trainer.latest
            if row and row is not run.noted:
                run.noted = row
                run.records.system(self._system_row(int(row["agent_steps"])))

    def _system_row(self, agent_steps: int) -> dict[str, float]:
        on_gpu = torch.cuda.memory_allocated(self._device) if self._device.type == "cuda" else 0
        return {
            "agent_steps": agent_steps,
            "unix_time": round(time.time(), 3),
            "seconds": round(time.monotonic() - self._began, 3),
            "memory_bytes": resident_bytes(),
            "gpu_memory_bytes": on_gpu,
        }

    def _survives(self, run: Run, half: Callable[[Trainer], None]) -> bool:
        """Runs share a process, not their fate."""
        try:
            half(run.trainer)
        except (Diverged, WorkerDied, InexactState, SnapshotError) as error:
            self.failed.append(f"seed {run.seed}: {error}")
            self._audience.warning(
                f"{run.folder.path} stopped: {error} "
                "Its last checkpoint is whole: the same command goes on from it."
            )
            return False
        return True

    # --- construction ---------------------------------------------------------------------------

    def _open(self) -> list[Run]:
        for folder in self._folders:
            folder.lock()
            self._closing.callback(folder.unlock)
        stored = [folder.read_config() if folder.exists else None for folder in self._folders]
        for folder, seed, config in zip(self._folders, self._request.seeds, stored, strict=True):
            self._check_config(folder, seed, config)
        environments = [self._launch(seed) for seed in self._request.seeds]
        for env in (env for envs in environments for env in envs):
            self._closing.callback(env.close)
        spec = environments[0][0].spec  # waits until it is built
        capacity = self._capacity(spec, stored)
        settings = self._settings(spec, capacity)
        learners = make_learners(
            settings,
            self._request.seeds,
            self._request.folders,
            announce=self._audience.line,
        )
        seed_generators(self._request.seeds[0])
        return [
            self._run(folder, seed, learner, envs, config)
            for folder, seed, learner, envs, config in zip(
                self._folders, self._request.seeds, learners, environments, stored, strict=True
            )
        ]

    def _run(
        self,
        folder: RunFolder,
        seed: int,
        learner: Learner,
        environments: list[ResilientEnvironment],
        stored: dict[str, Any] | None,
    ) -> Run:
        options = self._request.options
        checkpoints = Checkpoints(folder, options.keep.checkpoints)
        checkpoints.clean_up()
        found = checkpoints.newest(self._audience.warning) if stored else None
        state = found.state() if found else None
        train_env, *evaluation_envs = environments
        policy = make_policy(options.agent, learner.spec, self._device, self._execution)
        records = RunRecords(
            folder,
            options.agent,
            learner.spec,
            {"task": self._request.task, "preset": self._request.preset, "seed": seed},
            self._sinks(folder, seed, found),
            state["tables"] if state else {},
            partial(self._audience.evaluation, seed),
        )
        self._closing.callback(records.close)
        evaluator = Evaluator(policy, evaluation_envs, options.evaluation.episodes)
        schedule = Schedule(
            options.agent_steps, options.evaluation.every, options.log_every, overlap=self._overlap
        )
        trainer = Trainer(learner, train_env, evaluator, records, schedule)
        journal = Journal(folder.replay, found.pieces if found else ())
        run = Run(seed, folder, learner, trainer, records, checkpoints, journal, options.agent_steps)
        if found is not None and state is not None:
            self._resume(run, found, state)
        else:
            self._begin(run)
        return run

    def _begin(self, run: Run) -> None:
        """A run exists once its config is there: what was left by one that never came so far is replaced."""
        run.trainer.start()
        write_manifest(run.folder.path, self._manifest(run.learner.spec))
        run.save()
        run.folder.write_config(self._config(run.seed, run.learner.replay.shape.capacity))
        self._audience.line(f"new run {run.folder.path}")

    def _resume(self, run: Run, found: Checkpoint, state: dict[str, Any]) -> None:
        try:
            run.learner.load_state_dict(as_tensors(state["learner"]))
            run.learner.load_replay_state_dict(as_tensors(state["replay"]))
            run.journal.restore(run.learner)
            run.trainer.load_state_dict(state["trainer"])
            set_generator_states(state["generators"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{found.path} does not fit these settings: {error}.") from None
        add_to_manifest(run.folder.manifest, self._manifest(run.learner.spec))
        run.folder.write_config(self._config(run.seed, run.learner.replay.shape.capacity))
        self._audience.line(f"{run.folder.path} goes on from agent step {found.agent_steps}")

    def _launch(self, seed: int) -> list[ResilientEnvironment]:
        """The training environment, then those for evaluation."""
        options = self._request.options
        count = 1 + options.evaluation.environments
        seeds = np.random.SeedSequence([seed, _ENV_SEEDS]).generate_state(count).tolist()
        start = partial(launch, self._request.task, options=options.env, worker=options.workers)
        return [
            ResilientEnvironment(partial(start, seed=env_seed, training=place == 0), self._audience.warning)
            for place, env_seed in enumerate(seeds)
        ]

    def _settings(self, spec: EnvSpec, capacity: int) -> LearnerSettings:
        options = self._request.options
        config: AgentConfig = options.agent
        return LearnerSettings(config, spec, capacity, self._device, self._execution, options.replay.place)

    def _capacity(self, spec: EnvSpec, stored: Sequence[dict[str, Any] | None]) -> int:
        """As it was when the run began; for a new one, the whole run if that is not too much."""
        before = {config["capacity"] for config in stored if config}
        if before:
            return int(max(before))
        options = self._request.options
        # An episode has one observation more than steps; where its length is unknown, that is a guess.
        episodes = options.agent_steps // (spec.episode_steps or 50) + 2
        wanted = options.replay.capacity or min(options.agent_steps + episodes, _LARGEST_REPLAY)
        return max(int(wanted), int(options.agent.longest_horizon) + spec.frame_stack + 1)

    def _sinks(self, folder: RunFolder, seed: int, found: Checkpoint | None) -> list[Sink]:
        keep = self._request.options.keep
        name = f"{self._request.task}-{self._request.preset}-{seed}"
        settings = self._config(seed, 0)
        sinks: list[Sink] = []
        if keep.tensorboard:
            sinks.append(TensorBoard(folder.tensorboard, found.agent_steps if found else 0))
        if keep.wandb is not None:
            sinks.append(WeightsAndBiases(keep.wandb, folder.path, name, settings))
        if keep.trackio is not None:
            sinks.append(Trackio(keep.trackio, name, settings))
        return sinks

    @property
    def _overlap(self) -> bool:
        asked = self._request.options.evaluation.overlap
        return len(os.sched_getaffinity(0)) >= _CORES_FOR_OVERLAP if asked is None else asked

    # --- what is written down about a run -------------------------------------------------------

    def _config(self, seed: int, capacity: int) -> dict[str, Any]:
        options = self._request.options
        compute = replace(
            options.compute,
            device="cuda" if self._device.type == "cuda" else "cpu",
            mode=self._execution.mode,
            precision=self._execution.precision,
        )
        return {
            "format": CONFIG_FORMAT,
            "task": self._request.task,
            "preset": self._request.preset,
            "method": method_of(options.agent).name,
            "seed": seed,
            "capacity": capacity,
            "options": plain(replace(options, compute=compute)),
        }

    def _manifest(self, spec: EnvSpec) -> dict[str, Any]:
        gpu = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else None
        threads = torch.get_num_threads()
        return manifest(spec, gpu=gpu, cores=os.cpu_count(), threads=threads, cuda=torch.version.cuda)

    def _check_config(self, folder: RunFolder, seed: int, stored: dict[str, Any] | None) -> None:
        """Refuses to go on with a run under settings that would make another run of it."""
        if stored is None:
            return
        if stored.get("format") != CONFIG_FORMAT:
            raise UserError(
                f"{folder.config} has format {stored.get('format')}; "
                f"this version of ogspr reads {CONFIG_FORMAT}."
            )
        ours = self._config(seed, stored["capacity"])
        changes = [
            line
            for name in ("task", "method", "seed")
            for line in differences(stored[name], ours[name], name)
        ]
        changes += differences(decisive(stored["options"]), decisive(ours["options"]))
        if not changes:
            return
        listed = "\n  ".join(changes)
        if not self._request.allow_changes:
            raise UserError(
                f"{folder.path} was begun with other settings:\n  {listed}\n"
                "Use the same ones, another --out, or --allow-changes to go on all the same."
            )
        self._audience.warning(f"{folder.path} goes on with changed settings:\n  {listed}")


class _Clock:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def _device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device is usable here; leave --compute.device out, or see `ogspr doctor`.")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted)


def _execution(options: TrainOptions[Any], device: torch.device) -> Execution:
    default = default_execution(device.type)
    compute = options.compute
    return Execution(
        compute.mode or default.mode, compute.precision or default.precision, compute.deterministic
    )
