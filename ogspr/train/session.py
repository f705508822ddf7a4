"""A training process: one run for each seed, side by side on one device, saved and resumed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from ogspr.agents.methods import method_of
from ogspr.agents.protocol import AgentConfig
from ogspr.envs import ResilientEnvironment, WorkerDied, WorkerError, launch
from ogspr.errors import SnapshotError, UserError
from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.display import resident_bytes
from ogspr.records.files import NewFiles
from ogspr.records.manifest import continued_manifest, manifest, write_manifest
from ogspr.records.run import RunFolder, write_json
from ogspr.records.sinks import Sink, TensorBoard, Trackio, WeightsAndBiases
from ogspr.records.structure import flat, plain
from ogspr.train.device import usable_cores, usable_device, use_well
from ogspr.train.evaluation import Evaluation, Evaluator, Occasion
from ogspr.train.execution import Execution, default_execution
from ogspr.train.generators import generator_states, seed_generators, set_generator_states
from ogspr.train.journal import Journal
from ogspr.train.learner import Diverged, Learner, LearnerSettings, make_learners, plan_learners
from ogspr.train.options import TrainOptions
from ogspr.train.policies import make_policy
from ogspr.train.policy_file import SavedPolicy
from ogspr.train.recipes import SMALL, recipe
from ogspr.train.run_config import RunConfig, read_config, write_config
from ogspr.train.run_records import RunRecords
from ogspr.train.signals import Stopped, StopRequest
from ogspr.train.state_file import as_arrays, as_tensors
from ogspr.train.stopwatch import Stopwatch
from ogspr.train.trainer import Schedule, Trainer
from ogspr.types import EnvSpec, Place

_LARGEST_REPLAY = 1_000_000
_CORES_FOR_OVERLAP = 8
COMPILATION_SECONDS = 300.0  # with 16 cores it takes 90
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

    config: RunConfig
    folder: RunFolder
    learner: Learner
    trainer: Trainer
    records: RunRecords
    checkpoints: Checkpoints
    journal: Journal
    agent_steps: int  # in all
    found: Checkpoint | None  # from which it goes on
    noted: dict[str, float] = field(default_factory=dict)  # the row of the log that system.csv knows of

    def save(self) -> None:
        """A checkpoint of the state between two rounds."""
        pieces = self.journal.extend(self.learner)
        state: dict[str, Any] = {
            "learner": as_arrays(self.learner.state_dict()),
            "replay": as_arrays(self.learner.replay_state_dict()),
            "trainer": self.trainer.state_dict(),
            "generators": generator_states(),
            "records": self.records.state_dict(),
        }
        self.checkpoints.save(self.trainer.progress.agent_steps, state, pieces)

    def restore(self, state: Mapping[str, Any]) -> None:
        """What `save` has saved, into a run in which nothing has happened yet."""
        self.learner.load_state_dict(as_tensors(state["learner"]))
        self.learner.load_replay_state_dict(as_tensors(state["replay"]))
        self.journal.restore(self.learner)
        self.trainer.load_state_dict(state["trainer"])
        set_generator_states(state["generators"])


class Session:
    """Opens the runs of a request, trains them, and closes them again."""

    def __init__(
        self, request: Request, audience: Audience, stop: StopRequest, watch: Stopwatch | None = None
    ) -> None:
        self._request = request
        self._audience = audience
        self._stop = stop
        self._device = usable_device(request.options.compute.device, option="--compute.device")
        self._execution = _execution(request.options, self._device)
        self._folders = [RunFolder(path) for path in request.folders]
        self.failed: list[str] = []  # runs that could not go on
        self._watch = watch or Stopwatch()  # of all runs: they share a thread
        self._began = time.monotonic()

    def run(self) -> list[Run]:
        """Trains until everything is done; the runs as they ended. Stopped, if somebody asked for it."""
        use_well(self._device, self._request.options.compute.threads)
        with contextlib.ExitStack() as self._closing:
            with NewFiles() as files, self._stop.at_once():
                runs = self._open()
                self._prepare(runs, files)
            # Until here nothing has changed, and any of the runs could be refused.
            for run in runs:
                self._begin(run)
            self._train(runs)
        return runs

    # --- the loop -------------------------------------------------------------------------------

    def _train(self, runs: list[Run]) -> None:
        active = [run for run in runs if not run.trainer.finished]
        clock = _Clock(60.0 * self._request.options.keep.checkpoint_minutes)
        while active:
            self._rehearse(active)
            for part in (Trainer.begin_round, Trainer.pass_on_action, Trainer.finish_round):
                active = [run for run in active if self._survives(run, partial(part, run.trainer))]
            self._note_system(active)
            self._audience.round(runs)
            if self._stop.heard or clock.due():
                self._watch.switch("save")
                active = [run for run in active if self._survives(run, run.save)]
                self._watch.switch(Stopwatch.REST)
                self._stop.obey()
            finished = [run for run in active if run.trainer.finished]
            active = [run for run in active if run not in finished]
            for run in finished:
                self._survives(run, run.save)

    def _rehearse(self, runs: Sequence[Run]) -> None:
        """Compiling takes a minute on a GPU: too long to let somebody wait who wants to stop."""
        waiting = [run for run in runs if run.trainer.needs_rehearsal]
        if waiting and self._execution.mode == "graph":  # else there is nothing to rehearse
            self._audience.line("compiling the update, which takes a minute or two")
        for run in waiting:
            try:
                with self._stop.at_once(), self._told_when_it_takes_long():
                    run.trainer.rehearse()
            except Stopped:
                for each in runs:
                    self._survives(each, each.save)
                raise

    @contextlib.contextmanager
    def _told_when_it_takes_long(self) -> Iterator[None]:
        """Torch waits without end for helper processes of its own that hang."""
        advice = (
            f"the update has been compiling for {COMPILATION_SECONDS / 60:.0f} minutes; if that goes on, "
            "stop this run and start it again with TORCHINDUCTOR_COMPILE_THREADS=1 in the environment: "
            "torch does without helper processes then."
        )
        timer = threading.Timer(COMPILATION_SECONDS, self._audience.warning, [advice])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

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

    def _survives(self, run: Run, work: Callable[[], None]) -> bool:
        """Runs share a process, not their fate."""
        try:
            work()
        except Diverged as error:
            advice = "Its last checkpoint is whole: go on from it with other settings and --allow-changes."
            self._give_up(run, error, advice)
        except (WorkerDied, WorkerError, SnapshotError) as error:
            self._give_up(run, error, "Its last checkpoint is whole: the same command goes on from it.")
        else:
            return True
        return False

    def _give_up(self, run: Run, error: Exception, advice: str) -> None:
        self.failed.append(f"seed {run.config.seed}: {error}")
        self._audience.warning(f"{run.folder.path} stopped: {error} {advice}")

    # --- construction ---------------------------------------------------------------------------

    def _open(self) -> list[Run]:
        for folder in self._folders:
            folder.lock()
            self._closing.callback(folder.unlock)
        stored = [self._stored(*run) for run in zip(self._folders, self._request.seeds, strict=True)]
        settings, environments = self._launched(stored)
        learners = make_learners(
            settings,
            self._request.seeds,
            self._request.folders,
            announce=self._audience.line,
            warn=self._audience.warning,
        )
        seed_generators(self._request.seeds[0])
        return [
            self._run(folder, seed, learner, envs, config)
            for folder, seed, learner, envs, config in zip(
                self._folders, self._request.seeds, learners, environments, stored, strict=True
            )
        ]

    def _advise(self) -> None:
        """About what is allowed and seldom meant."""
        options = self._request.options
        if options.agent_steps <= options.agent.random_steps:
            self._audience.warning(
                f"nothing will be learned: the first {options.agent.random_steps} agent steps are random "
                f"(--agent.random-steps), and there are {options.agent_steps}."
            )
        as_published = not any(name.startswith("agent.") for name in self._changed_settings())
        if self._device.type == "cpu" and as_published and self._request.preset != SMALL:
            self._audience.warning(
                f"{self._request.preset} was made for a GPU and takes days on a CPU; for one, there is "
                f"--preset {SMALL}."
            )

    def _stored(self, folder: RunFolder, seed: int) -> RunConfig | None:
        """The settings of a run that exists and may go on; None where a new one may begin."""
        if folder.exists:
            stored = read_config(folder)
            self._check_changes(folder, stored, self._config(seed, stored.capacity, stored.place, stored))
            return stored
        if folder.has_results:
            raise UserError(
                f"{folder.path} holds results of a run, but no config.json; "
                "put it back, or choose another --out."
            )
        return None

    def _run(
        self,
        folder: RunFolder,
        seed: int,
        learner: Learner,
        environments: list[ResilientEnvironment],
        stored: RunConfig | None,
    ) -> Run:
        options = self._request.options
        config = self._config(seed, learner.replay.shape.capacity, learner.place, stored)
        checkpoints = Checkpoints(folder, options.keep.checkpoints)
        found = checkpoints.newest(self._audience.warning) if stored else None
        if found is not None and found.agent_steps > options.agent_steps:
            raise UserError(
                f"{folder.path} is at agent step {found.agent_steps} already, and --agent-steps "
                f"{options.agent_steps} ends before; use a larger number, or another --out."
            )
        state = found.state() if found else None
        with _fitting(found):
            records = self._records(folder, config, learner.spec, state)
        train_env, *evaluation_envs = environments
        policy = make_policy(options.agent, learner.spec, self._device, self._execution)
        evaluator = Evaluator(policy, evaluation_envs, options.evaluation.episodes, config.seed)
        log_every = min(options.log_every, options.agent_steps)  # a short run has a row of numbers, too
        schedule = Schedule(
            options.agent_steps,
            options.evaluation.every,
            log_every,
            overlap=self._overlap,
            final_episodes=options.evaluation.final_episodes,
        )
        trainer = Trainer(learner, train_env, evaluator, records, schedule, self._watch)
        journal = Journal(folder.replay, found.pieces if found else ())
        run = Run(config, folder, learner, trainer, records, checkpoints, journal, options.agent_steps, found)
        with _fitting(found):
            if state is None:
                trainer.start()
            else:
                run.restore(state)
        return run

    def _records(
        self, folder: RunFolder, config: RunConfig, spec: EnvSpec, state: dict[str, Any] | None
    ) -> RunRecords:
        options = self._request.options

        def describe(occasion: Occasion, score: float) -> SavedPolicy:
            origin = {
                "task": config.task,
                "preset": config.preset,
                "seed": config.seed,
                "agent_steps": occasion.agent_steps,
                "score": score,
            }
            return SavedPolicy(options.agent, spec, options.env, occasion.weights, origin)

        sinks = self._sinks(folder, config)
        listen = partial(self._audience.evaluation, config.seed)
        records = RunRecords(folder, describe, sinks, state["records"] if state else None, listen)
        self._closing.callback(records.close)
        return records

    def _prepare(self, runs: Sequence[Run], files: NewFiles) -> None:
        """Writes what takes room on the disk, and puts it in the place of nothing."""
        generators = generator_states()  # services that log may draw from them
        for run in runs:
            run.records.prepare(files)
            if run.found is not None:
                manifest = continued_manifest(run.folder.manifest, self._manifest(run.learner))
                write_json(files.begin(run.folder.manifest), manifest)
                write_config(files.begin(run.folder.config), run.config)
        set_generator_states(generators)

    def _begin(self, run: Run) -> None:
        """A run exists once its config is there: what was left by one that never came so far is replaced."""
        run.folder.clean_up()
        run.records.begin()
        if (found := run.found) is None:
            write_manifest(run.folder.path, self._manifest(run.learner))
            run.save()
            write_config(run.folder.config, run.config)
            self._audience.line(f"new run {run.folder.path}")
            return
        run.checkpoints.put_aside(found.damaged)
        if found.agent_steps == self._request.options.agent_steps:
            self._audience.line(f"{run.folder.path} has made its {found.agent_steps} agent steps")
        else:
            self._audience.line(f"{run.folder.path} goes on from agent step {found.agent_steps}")

    def _launched(
        self, stored: Sequence[RunConfig | None]
    ) -> tuple[LearnerSettings, list[list[ResilientEnvironment]]]:
        """What the learners have in common, as the first environment tells it, and the environments of each.

        The others start where there is room for replay: they are many, and a refusal would wait for them.
        """
        environments: list[ResilientEnvironment] = []
        self._closing.callback(_close_all, environments)
        launching = self._launching()
        environments.append(next(launching))
        spec = environments[0].spec  # waits until it is built: advice on one that cannot be helps nobody
        self._advise()
        settings = self._settings(spec, stored)
        plan_learners(settings, len(self._request.seeds))
        environments.extend(launching)
        _wait_for(environments)
        count = self._environments_a_run
        return settings, [environments[place : place + count] for place in range(0, len(environments), count)]

    @property
    def _environments_a_run(self) -> int:
        return 1 + self._request.options.evaluation.environments

    def _launching(self) -> Iterator[ResilientEnvironment]:
        """For each seed the training environment, then those for evaluation; each when it is asked for."""
        options = self._request.options
        start = partial(launch, self._request.task, options=options.env, worker=options.workers)
        for seed in self._request.seeds:
            chance = np.random.SeedSequence([seed, _ENV_SEEDS])
            for place, env_seed in enumerate(chance.generate_state(self._environments_a_run).tolist()):
                build = partial(start, seed=env_seed, training=place == 0)
                yield ResilientEnvironment(build, self._audience.warning)

    def _settings(self, spec: EnvSpec, stored: Sequence[RunConfig | None]) -> LearnerSettings:
        """Replay stays as large, and where it was, when a run began."""
        options = self._request.options
        config: AgentConfig = options.agent
        begun = [run for run in stored if run is not None]
        kept = {(run.capacity, run.place) for run in begun}
        if len(kept) > 1 or (kept and len(begun) < len(stored)):
            raise UserError("these runs were begun with different replays; go on with each by itself.")
        capacity, place = kept.pop() if kept else (self._capacity(spec), options.replay.place)
        longer = begun and options.agent_steps > begun[0].options["agent_steps"]
        if longer and capacity < self._capacity(spec):
            self._audience.warning(f"the run is longer now; its replay still holds {capacity} observations.")
        return LearnerSettings(config, spec, capacity, self._device, self._execution, place)

    def _capacity(self, spec: EnvSpec) -> int:
        """The whole run, if that is not too much."""
        options = self._request.options
        # An episode has one observation more than steps; where its length is unknown, that is a guess.
        episodes = options.agent_steps // (spec.episode_steps or 50) + 2
        wanted = options.replay.capacity or min(options.agent_steps + episodes, _LARGEST_REPLAY)
        return max(int(wanted), int(options.agent.longest_horizon) + spec.frame_stack + 1)

    def _sinks(self, folder: RunFolder, config: RunConfig) -> list[Sink]:
        keep = self._request.options.keep
        name = f"{config.task}-{config.preset}-{config.seed}"
        sinks: list[Sink] = []
        if keep.tensorboard:
            sinks.append(TensorBoard(folder.tensorboard))
        if keep.wandb is not None:
            sinks.append(WeightsAndBiases(keep.wandb, folder.path, name, config.identity, plain(config)))
        if keep.trackio is not None:
            sinks.append(Trackio(keep.trackio, name, config.identity, plain(config)))
        return sinks

    @property
    def _overlap(self) -> bool:
        asked = self._request.options.evaluation.overlap
        return usable_cores() >= _CORES_FOR_OVERLAP if asked is None else asked

    # --- what is written down about a run -------------------------------------------------------

    def _config(self, seed: int, capacity: int, place: Place, stored: RunConfig | None) -> RunConfig:
        options = self._request.options
        compute = replace(
            options.compute,
            device="cuda" if self._device.type == "cuda" else "cpu",
            mode=self._execution.mode,
            precision=self._execution.precision,
        )
        return RunConfig(
            task=self._request.task,
            preset=self._request.preset,
            method=method_of(options.agent).name,
            seed=seed,
            capacity=capacity,
            place=place,
            identity=stored.identity if stored else uuid4().hex[:12],
            options=plain(replace(options, compute=compute)),
        )

    def _manifest(self, learner: Learner) -> dict[str, Any]:
        return manifest(
            learner.spec,
            gpu=torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else None,
            cores=os.cpu_count(),
            threads=torch.get_num_threads(),
            cuda=torch.version.cuda,
            parameters=learner.agent.parameter_count,
            seeds=len(self._request.seeds),
            changed=self._changed_settings(),
        )

    def _changed_settings(self) -> dict[str, Any]:
        """What decides how this run learns and is not as in its preset, by the names of the command line."""
        request = self._request
        usual, ours = (
            dict(flat({"agent": plain(options.agent), "env": plain(options.env)}))
            for options in (recipe(request.preset, request.task), request.options)
        )
        return {name: value for name, value in ours.items() if usual.get(name) != value}

    def _check_changes(self, folder: RunFolder, stored: RunConfig, wanted: RunConfig) -> None:
        """Refuses to go on with a run under settings that would make another run of it."""
        if stored.task != wanted.task:
            raise UserError(
                f"{folder.path} is a run of {stored.task}, not of {wanted.task}; choose another --out."
            )
        changes = stored.changes(wanted)
        if not changes:
            return
        listed = "\n  ".join(changes)
        if not self._request.allow_changes:
            raise UserError(
                f"{folder.path} was begun with other settings:\n  {listed}\n"
                "Use the same ones, another --out, or --allow-changes to go on all the same."
            )
        self._audience.warning(f"{folder.path} goes on with changed settings:\n  {listed}")


@contextlib.contextmanager
def _fitting(found: Checkpoint | None) -> Iterator[None]:
    """Tells of a state that is of another run, or of none."""
    try:
        yield
    except (WorkerDied, WorkerError, torch.OutOfMemoryError):
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if found is None:
            raise
        raise UserError(
            f"{found.path} does not fit these settings: {error}; use those the run was begun with."
        ) from None


def _wait_for(environments: Sequence[ResilientEnvironment]) -> None:
    """Until all are built: the memory they take is no room for replay any more."""
    for env in environments:
        _ = env.spec


def _close_all(environments: Sequence[ResilientEnvironment]) -> None:
    """All at once, not one after the other."""
    for env in environments:
        env.ask_to_close()
    for env in environments:
        env.close()


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


def _execution(options: TrainOptions[Any], device: torch.device) -> Execution:
    default = default_execution(device.type)
    compute = options.compute
    return Execution(
        compute.mode or default.mode, compute.precision or default.precision, compute.deterministic
    )
