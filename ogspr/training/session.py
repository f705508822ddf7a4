"""A training process: one run for each seed, side by side on one device, saved and resumed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from ogspr.device import Device, configure_threads, resolve_device
from ogspr.envs import WorkerDied, WorkerError
from ogspr.errors import Diverged, SnapshotError, UserError
from ogspr.records.display import resident_bytes
from ogspr.records.files import NewFiles
from ogspr.training.opening import Opening
from ogspr.training.options import Execution, TrainOptions, default_execution
from ogspr.training.run import Listener, Request, Run
from ogspr.training.signals import Stopped, StopRequest
from ogspr.training.state_file import generator_states, set_generator_states
from ogspr.training.trainer import Stopwatch, Trainer

COMPILATION_SECONDS = 300.0  # with 16 cores it takes 90


class Session:
    """Opens the runs of a request, trains them, and closes them again."""

    def __init__(
        self, request: Request, listener: Listener, stop: StopRequest, watch: Stopwatch | None = None
    ) -> None:
        self._request = request
        self._listener = listener
        self._stop = stop
        self._device = resolve_device(request.options.compute.device, option="--compute.device")
        self._execution = _execution(request.options, self._device)
        self.failed: list[str] = []  # runs that could not continue
        self.all_diverged = True  # those that failed
        self._watch = watch or Stopwatch()  # of all runs: they share a thread
        self._began = time.monotonic()

    def run(self) -> list[Run]:
        """Trains until everything is done; the runs as they ended. Stopped, if a stop was requested."""
        configure_threads(self._device, self._request.options.compute.threads)
        with contextlib.ExitStack() as closing:
            opening = Opening(
                self._request, self._listener, self._device, self._execution, self._watch, closing
            )
            with NewFiles() as files, self._stop.interruptible():
                runs = opening.open()
                self._get_ready([run for run in runs if run.found and not run.trainer.finished])
                opening.prepare(runs, files)
            # Until here nothing has changed, and any of the runs could be refused.
            for run in runs:
                opening.begin(run)
            self._train(runs)
        return runs

    def _train(self, runs: list[Run]) -> None:
        active = [run for run in runs if not run.trainer.finished]
        for run in runs:
            if run.trainer.finished and not (run.found and run.found.finished):  # stopped just before its end
                self._run_guarded(run, partial(run.save, last=True))
        clock = _Clock(60.0 * self._request.options.keep.checkpoint_minutes)
        while active:
            self._rehearse(active)
            for part in (Trainer.begin_round, Trainer.send_action, Trainer.finish_round):
                active = [run for run in active if self._run_guarded(run, partial(part, run.trainer))]
            self._note_system(active)
            self._listener.round(runs)
            if self._stop.requested or clock.due():
                self._watch.switch("save")
                active = [run for run in active if self._run_guarded(run, run.save)]
                self._watch.switch(Stopwatch.REST)
                self._stop.raise_if_requested()
            finished = [run for run in active if run.trainer.finished]
            active = [run for run in active if run not in finished]
            for run in finished:
                self._run_guarded(run, partial(run.save, last=True))

    def _get_ready(self, resumed: Sequence[Run]) -> None:
        """Whatever could fail in their first steps does so before anything of them is lost.

        That of a new run may fail when it comes.
        """
        generators = generator_states()  # compilers may draw from them
        self._announce_compiling(resumed)
        try:
            for run in resumed:
                with self._warn_if_slow():
                    run.trainer.get_ready()
        except torch.OutOfMemoryError as error:
            raise UserError(f"the GPU has too little free memory to go on: {error}") from None
        except Exception:
            self._stop.raise_if_requested()  # interrupted, the capture of a graph ends with errors of its own
            raise
        set_generator_states(generators)

    def _announce_compiling(self, runs: Sequence[Run]) -> None:
        if runs and self._execution.mode != "eager":
            self._listener.line("compiling the update, which takes a minute or two")

    def _rehearse(self, runs: Sequence[Run]) -> None:
        """Compiling takes a minute on a GPU: too long to wait for a stop."""
        waiting = [run for run in runs if run.trainer.needs_rehearsal]
        self._announce_compiling(waiting)
        for run in waiting:
            try:
                with self._stop.interruptible(), self._warn_if_slow():
                    run.trainer.rehearse()
            except Stopped:
                for each in runs:
                    self._run_guarded(each, each.save)
                raise

    @contextlib.contextmanager
    def _warn_if_slow(self) -> Iterator[None]:
        """Torch waits forever for its helper processes if they hang."""
        advice = (
            f"the update has been compiling for {COMPILATION_SECONDS / 60:.0f} minutes; if it does not "
            "finish, stop this run and start it again with TORCHINDUCTOR_COMPILE_THREADS=1 set: "
            "torch then compiles without helper processes."
        )
        timer = threading.Timer(COMPILATION_SECONDS, self._listener.warning, [advice])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note_system(self, runs: Sequence[Run]) -> None:
        for run in runs:
            row = run.trainer.latest
            if row and row is not run.logged:
                run.logged = row
                run.records.system(self._system_row(int(row["agent_steps"])))

    def _system_row(self, agent_steps: int) -> dict[str, float]:
        return {
            "agent_steps": agent_steps,
            "unix_time": round(time.time(), 3),
            "seconds": round(time.monotonic() - self._began, 3),
            "memory_bytes": resident_bytes(),
            "gpu_memory_bytes": self._device.allocated_bytes,
        }

    def _run_guarded(self, run: Run, work: Callable[[], None]) -> bool:
        """Runs share a process, not their fate."""
        try:
            work()
        except Diverged as error:
            advice = "Its last checkpoint is intact: resume from it with other settings and --allow-changes."
            self._give_up(run, error, advice)
        except (WorkerDied, WorkerError, SnapshotError) as error:
            self._give_up(run, error, "Its last checkpoint is intact: the same command resumes from it.")
        else:
            return True
        return False

    def _give_up(self, run: Run, error: Exception, advice: str) -> None:
        self.failed.append(f"seed {run.config.seed}: {error}")
        self.all_diverged = self.all_diverged and isinstance(error, Diverged)
        self._listener.warning(f"{run.folder.path} stopped: {error} {advice}")


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


def _execution(options: TrainOptions[Any], device: Device) -> Execution:
    default = default_execution(device.is_gpu)
    compute = options.compute
    return Execution(
        compute.mode or default.mode, compute.precision or default.precision, compute.deterministic
    )
