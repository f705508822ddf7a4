"""An environment in a process of its own, and one in this process with the same interface.

Steps go through shared memory and a pair of semaphores (some ten microseconds); everything rare goes
through a pipe. The parent never waits for a dead worker, and a worker never outlives its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

from ogspr.envs.cleanup import close_at_exit
from ogspr.envs.protocol import Environment
from ogspr.errors import UserError
from ogspr.types import Action, EnvSpec, Snapshot, TimeStep

_STEP, _CALL, _CLOSE = range(3)
_LIVENESS_SECONDS = 0.1  # how soon the death of a worker is noticed
_GRACE_SECONDS = 3.0  # how long a worker may take to close before it is ended
_FAULT_BYTES = 1024


class WorkerError(RuntimeError):
    """The environment raised in its worker; the message holds the worker's traceback."""


class WorkerDied(RuntimeError):
    """The worker process ended by itself (killed, out of memory, crashed library)."""


class InProcess:
    """Gives an environment of this process the interface of a worker."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._pending: Action | None = None
        self.spec = env.spec
        self.reset = env.reset
        self.step = env.step
        self.snapshot = env.snapshot
        self.restore = env.restore
        self.close = env.close

    def begin_step(self, action: Action) -> None:
        if self._pending is not None:
            raise RuntimeError("finish the step that was begun first")
        self._pending = action

    def finish_step(self) -> TimeStep:
        if self._pending is None:
            raise RuntimeError("no step was begun")
        action, self._pending = self._pending, None
        return self._env.step(action)


class WorkerEnvironment:
    """An environment that lives in a spawned process; built there by `build`."""

    def __init__(self, build: Callable[[], Environment], name: str) -> None:
        context = multiprocessing.get_context("spawn")  # GL does not survive a fork
        self._name = name
        self._request = context.Semaphore(0)
        self._response = context.Semaphore(0)
        self._pipe, theirs = context.Pipe()
        self._memory: SharedMemory | None = None
        self._step_pending = False
        self._process = context.Process(
            target=_serve, args=(build, theirs, self._request, self._response), name=name, daemon=True
        )
        self._process.start()
        theirs.close()
        close_at_exit(self)
        try:
            self.spec, memory_name = self._receive()
            self._memory = SharedMemory(memory_name)
            # Both sides have it open: without a name nothing can be left behind.
            self._memory.unlink()
        except BaseException:
            self.close()
            raise
        self._fields = _record(self._memory, self.spec)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def reset(self) -> TimeStep:
        result: TimeStep = self._call("reset")
        return result

    def step(self, action: Action) -> TimeStep:
        self.begin_step(action)
        return self.finish_step()

    def begin_step(self, action: Action) -> None:
        self._check_idle()
        self._fields["action"][...] = self.spec.actions.checked(action)
        self._step_pending = True
        self._submit(_STEP)

    def finish_step(self) -> TimeStep:
        if not self._step_pending:
            raise RuntimeError("no step was begun")
        self._step_pending = False
        self._await_response()
        if self._fields["failed"]:
            self._receive()
        return _read_step(self._fields)

    def snapshot(self) -> Snapshot:
        result: Snapshot = self._call("snapshot")
        return result

    def restore(self, snapshot: Snapshot) -> TimeStep:
        result: TimeStep = self._call("restore", snapshot)
        return result

    def close(self) -> None:
        """Ends the worker; safe to call again, after a failure, and in the middle of a step."""
        if self._process.is_alive():
            if self._memory is not None:
                self._submit(_CLOSE)
                self._process.join(_GRACE_SECONDS)
            for end in (self._process.terminate, self._process.kill):
                if self._process.is_alive():
                    end()
                    self._process.join(_GRACE_SECONDS)
        self._pipe.close()
        self._fields = {}
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _call(self, method: str, *arguments: Any) -> Any:
        self._check_idle()
        self._submit(_CALL)
        try:
            # After the semaphore: the worker reads while we write, so no pipe is ever full for good.
            self._pipe.send((method, arguments))
        except OSError:
            raise self._death() from None
        self._await_response()
        return self._receive()

    def _check_idle(self) -> None:
        if self._memory is None:
            raise RuntimeError(f"{self._name}: this worker is closed")
        if self._step_pending:
            raise RuntimeError("finish the step that was begun first")

    def _submit(self, command: int) -> None:
        self._fields["command"][...] = command
        self._request.release()

    def _await_response(self) -> None:
        while not self._response.acquire(timeout=_LIVENESS_SECONDS):
            # A last look: it may have answered and died in between.
            if not self._process.is_alive() and not self._response.acquire(block=False):
                raise self._death()

    def _receive(self) -> Any:
        """What the worker sent; raises what it raised."""
        connection.wait([self._pipe, self._process.sentinel])
        try:
            kind, value = self._pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if kind == "user error":
            raise value
        if kind == "error":
            raise WorkerError(f"{self._name} failed in its worker process:\n{value}")
        return value

    def _death(self) -> WorkerDied:
        self._process.join(_GRACE_SECONDS)
        code = self._process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return WorkerDied(f"{self._name}: the worker process {self.pid} died ({how}).")


def _record(memory: SharedMemory, spec: EnvSpec) -> dict[str, npt.NDArray[Any]]:
    """Views of the fields that parent and worker share, one for each name."""
    layout = _layout(spec)
    record: npt.NDArray[Any] = np.ndarray((), layout, buffer=memory.buf)
    return {name: record[name] for name in layout.names or ()}


def _layout(spec: EnvSpec) -> np.dtype[Any]:
    fields = [
        ("command", np.uint8),
        ("failed", np.bool_),
        ("action", spec.actions.dtype, spec.actions.shape),
        ("observation", np.uint8, spec.observation_shape),
        ("reward", np.float64),
        ("score", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("frames", np.int64),
        ("proprioception", np.float64, (spec.proprioception_size,)),
        ("fault", f"S{_FAULT_BYTES}"),
    ]
    return np.dtype(fields, align=True)


def _write_step(fields: dict[str, npt.NDArray[Any]], step: TimeStep) -> None:
    fields["observation"][...] = step.observation
    fields["reward"][...] = step.reward
    fields["score"][...] = step.score
    fields["terminated"][...] = step.terminated
    fields["truncated"][...] = step.truncated
    fields["frames"][...] = step.frames
    fields["proprioception"][...] = step.proprioception
    fields["fault"][...] = step.fault.encode()[:_FAULT_BYTES]


def _read_step(fields: dict[str, npt.NDArray[Any]]) -> TimeStep:
    return TimeStep(
        observation=fields["observation"].copy(),
        reward=float(fields["reward"]),
        score=float(fields["score"]),
        terminated=bool(fields["terminated"]),
        truncated=bool(fields["truncated"]),
        frames=int(fields["frames"]),
        proprioception=fields["proprioception"].copy(),
        fault=bytes(fields["fault"][()]).decode(errors="replace"),
    )


def _serve(build: Callable[[], Environment], pipe: Any, request: Any, response: Any) -> None:
    """The worker's life: build the environment, answer requests until told to close."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        env = build()
    except Exception as error:
        pipe.send(_failure(error))
        return
    try:
        memory = SharedMemory(create=True, size=_layout(env.spec).itemsize)
        fields = _record(memory, env.spec)
        pipe.send(("ok", (env.spec, memory.name)))
        _answer_requests(env, fields, pipe, request, response)
        del fields
        memory.close()
    finally:
        env.close()


def _answer_requests(
    env: Environment, fields: dict[str, npt.NDArray[Any]], pipe: Any, request: Any, response: Any
) -> None:
    while True:
        request.acquire()
        command = int(fields["command"])
        if command == _CLOSE:
            return
        reply: tuple[str, Any] | None = None
        try:
            if command == _STEP:
                _write_step(fields, env.step(fields["action"].copy()))
            else:
                method, arguments = pipe.recv()
                reply = ("ok", getattr(env, method)(*arguments))
        except Exception as error:
            reply = _failure(error)
        fields["failed"][...] = reply is not None
        response.release()
        if reply is not None:
            pipe.send(reply)


def _failure(error: Exception) -> tuple[str, Any]:
    if isinstance(error, UserError):
        return ("user error", error)
    return ("error", "".join(traceback.format_exception(error)).rstrip())


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
