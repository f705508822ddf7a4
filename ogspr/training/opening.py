"""From a request to runs that can train: every refusal happens here, before anything on disk has changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from ogspr.agents.agent import make_policy
from ogspr.agents.methods import SMALL, method_of
from ogspr.agents.protocol import AgentConfig
from ogspr.device import Device, usable_cores
from ogspr.envs import ResilientEnvironment, WorkerDied, WorkerError, launch
from ogspr.errors import UserError
from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.files import NewFiles
from ogspr.records.run import RunFolder, continued_manifest, manifest, write_json, write_manifest
from ogspr.records.settings_io import flat, plain
from ogspr.records.sinks import Sink, TensorBoard, Trackio, WeightsAndBiases
from ogspr.training.evaluation import Evaluator, PolicySnapshot
from ogspr.training.graph import make_accelerator
from ogspr.training.learner import Learner, LearnerSettings, make_learners, plan_learners
from ogspr.training.options import Execution
from ogspr.training.policy_file import SavedPolicy
from ogspr.training.presets import preset_options
from ogspr.training.run import Listener, ReplayStore, Request, Run
from ogspr.training.run_records import RunRecords
from ogspr.training.saved_run import RunConfig, read_config, write_config
from ogspr.training.state_file import generator_states, seed_generators, set_generator_states
from ogspr.training.trainer import Schedule, Stopwatch, Trainer
from ogspr.types import EnvSpec, Place

_LARGEST_REPLAY = 1_000_000
_CORES_FOR_OVERLAP = 8
_ENV_SEEDS = 0x0E57  # so that environments and networks of a seed share no random numbers


class Opening:
    """Opens the runs of a request, new or resumed.

    Args:
        request: What was asked for.
        listener: Called with it.
        device: Where learners compute.
        execution: How.
        watch: Of all runs: they share a thread.
        closing: Takes what has to be closed again.
    """

    def __init__(
        self,
        request: Request,
        listener: Listener,
        device: Device,
        execution: Execution,
        watch: Stopwatch,
        closing: contextlib.ExitStack,
    ) -> None:
        self._request = request
        self._listener = listener
        self._device = device
        self._execution = execution
        self._watch = watch
        self._closing = closing
        self._folders = [RunFolder(path) for path in request.folders]

    def open(self) -> list[Run]:
        for folder in self._folders:
            folder.lock()
            self._closing.callback(folder.unlock)
        stored = [self._stored(*run) for run in zip(self._folders, self._request.seeds, strict=True)]
        settings, environments = self._launched(stored)
        learners = make_learners(
            settings,
            self._request.seeds,
            self._request.folders,
            announce=self._listener.line,
            warn=self._listener.warning,
        )
        seed_generators(self._request.seeds[0])
        return [
            self._run(folder, seed, learner, envs, config)
            for folder, seed, learner, envs, config in zip(
                self._folders, self._request.seeds, learners, environments, stored, strict=True
            )
        ]

    def prepare(self, runs: Sequence[Run], files: NewFiles) -> None:
        """Writes what takes room on the disk, and puts it in the place of nothing."""
        generators = generator_states()  # services that log may draw from them
        for run in runs:
            run.records.prepare(files)
            if run.found is not None:
                run.checkpoints.check_writable()
                manifest = continued_manifest(run.folder.manifest, self._manifest(run.learner))
                write_json(files.begin(run.folder.manifest), manifest)
                write_config(files.begin(run.folder.config), run.config)
        set_generator_states(generators)

    def begin(self, run: Run) -> None:
        """A run exists once its config is there: what was left by one that never came so far is replaced."""
        if run.found is not None:
            run.checkpoints.put_aside(run.found.damaged, self._listener.warning)
        run.folder.clean_up()
        run.records.begin()
        if (found := run.found) is None:
            write_manifest(run.folder.path, self._manifest(run.learner))
            run.save()
            write_config(run.folder.config, run.config)
            self._listener.line(f"new run {run.folder.path}")
            return
        if found.agent_steps == self._request.options.agent_steps:
            self._listener.line(f"{run.folder.path} is complete ({found.agent_steps} agent steps)")
        else:
            self._listener.line(f"resuming {run.folder.path} from agent step {found.agent_steps}")

    # --- one run ---------------------------------------------------------------------------------

    def _stored(self, folder: RunFolder, seed: int) -> RunConfig | None:
        """The settings of an existing run that may be resumed; None if a new one may start."""
        if folder.exists:
            stored = read_config(folder)
            self._check_changes(folder, stored, self._config(seed, stored.capacity, stored.place, stored))
            return stored
        if folder.has_results:
            raise UserError(
                f"{folder.path} holds results of a run, but no config.json; "
                "restore it, or choose another --out."
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
        found = checkpoints.newest(self._listener.warning) if stored else None
        if found is not None and found.agent_steps > options.agent_steps:
            raise UserError(
                f"{folder.path} is already at agent step {found.agent_steps}, beyond --agent-steps "
                f"{options.agent_steps}; use a larger number, or another --out."
            )
        if found is not None and not found.has_replay and found.agent_steps < options.agent_steps:
            raise UserError(
                f"{folder.path} was done at agent step {found.agent_steps} and dropped its replay, so it "
                "cannot be made longer; use another --out. --keep.replay always keeps it."
            )
        state = found.state() if found else None
        with _fitting(found):
            records = self._records(folder, config, learner.spec, state)
        train_env, *evaluation_envs = environments
        accelerator = make_accelerator(self._execution, self._device)
        policy = make_policy(options.agent, learner.spec, device=self._device, accelerator=accelerator)
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
        replay_store = ReplayStore(folder.replay, found.pieces if found else ())
        run = Run(config, folder, learner, trainer, records, checkpoints, replay_store, options, found)
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

        def describe(snapshot: PolicySnapshot, score: float) -> SavedPolicy:
            origin = {
                "task": config.task,
                "preset": config.preset,
                "seed": config.seed,
                "agent_steps": snapshot.agent_steps,
                "score": score,
            }
            return SavedPolicy(options.agent, spec, options.env, snapshot.weights, origin)

        sinks = self._sinks(folder, config)
        listen = partial(self._listener.evaluation, config.seed)
        records = RunRecords(folder, describe, sinks, state["records"] if state else None, listen)
        self._closing.callback(records.close)
        return records

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

    # --- environments and learners ----------------------------------------------------------------

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
        spec = environments[0].spec  # waits until it is built: no advice on one that cannot be built
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
                yield ResilientEnvironment(build, self._listener.warning)

    def _settings(self, spec: EnvSpec, stored: Sequence[RunConfig | None]) -> LearnerSettings:
        """Replay keeps the size and place it had when the runs started; later seeds take the same."""
        options = self._request.options
        config: AgentConfig = options.agent
        begun = [run for run in stored if run is not None]
        kept = {(run.capacity, run.place) for run in begun}
        if len(kept) > 1:
            raise UserError(
                "these runs were started with different replay buffers; resume each of them separately."
            )
        capacity, place = kept.pop() if kept else (self._capacity(spec), options.replay.place)
        longer = begun and options.agent_steps > begun[0].options["agent_steps"]
        if longer and capacity < self._capacity(spec):
            self._listener.warning(f"the run is longer now; its replay still holds {capacity} observations.")
        return LearnerSettings(config, spec, capacity, self._device, self._execution, place)

    def _capacity(self, spec: EnvSpec) -> int:
        """The whole run, if that is not too much."""
        options = self._request.options
        # An episode has one observation more than steps; where its length is unknown, that is a guess.
        episodes = options.agent_steps // (spec.episode_steps or 50) + 2
        wanted = options.replay.capacity or min(options.agent_steps + episodes, _LARGEST_REPLAY)
        return max(int(wanted), int(options.agent.longest_horizon) + spec.frame_stack + 1)

    def _advise(self) -> None:
        """About what is allowed and seldom meant."""
        options = self._request.options
        if options.agent_steps <= options.agent.random_steps:
            self._listener.warning(
                f"no updates will run: the first {options.agent.random_steps} agent steps are random "
                f"exploration (--agent.random-steps), and there are {options.agent_steps}."
            )
        as_published = not any(name.startswith("agent.") for name in self._changed_settings())
        if not self._device.is_gpu and as_published and self._request.preset != SMALL:
            self._listener.warning(
                f"{self._request.preset} was made for a GPU and takes days on a CPU; "
                f"use --preset {SMALL} there."
            )

    # --- what is written down about a run --------------------------------------------------------

    def _config(self, seed: int, capacity: int, place: Place, stored: RunConfig | None) -> RunConfig:
        options = self._request.options
        compute = replace(
            options.compute,
            device=self._device.kind,
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
            gpu=self._device.gpu_name,
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
            for options in (preset_options(request.preset, request.task), request.options)
        )
        return {name: value for name, value in ours.items() if usual.get(name) != value}

    def _check_changes(self, folder: RunFolder, stored: RunConfig, wanted: RunConfig) -> None:
        """Refuses to resume a run with settings that would make it a different run."""
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
                f"{folder.path} was started with different settings:\n  {listed}\n"
                "Use the same ones, another --out, or --allow-changes to resume anyway."
            )
        self._listener.warning(f"resuming {folder.path} with changed settings:\n  {listed}")


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
            f"{found.path} does not fit these settings: {error}; use the settings the run was started with."
        ) from None


def _wait_for(environments: Sequence[ResilientEnvironment]) -> None:
    """Until all are built: the memory they take is not available for replay."""
    for env in environments:
        _ = env.spec


def _close_all(environments: Sequence[ResilientEnvironment]) -> None:
    """All at once, not one after the other."""
    for env in environments:
        env.ask_to_close()
    for env in environments:
        env.close()
