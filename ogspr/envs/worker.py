"""An environment in a separate process, and one in this process with the same interface.

Steps go through shared memory and a pair of semaphores; everything rare goes through a pipe. The parent
never waits for a dead worker, and a worker never outlives its parent.

Every request has a number, kept in the shared memory: `sequence` is the last one asked for, `answered` the
last one done. Both sides compare numbers instead of trusting how often a semaphore was released, so an
exchange that an exception (Ctrl-C) cut short at any point can be taken up again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

from ogspr.envs.cleanup import close_at_exit
from ogspr.envs.protocol import Environment
from ogspr.envs.trust import current_folder_ignored
from ogspr.errors import UserError
from ogspr.types import Action, EnvSpec, Snapshot, TimeStep

_STEP, _CALL, _CLOSE = range(3)
_LIVENESS_SECONDS = 0.1  # how soon the death of a worker is noticed
_AWAKE_SECONDS = 1e-4  # how long a worker stays awake for the next request
_GRACE_SECONDS = 3.0  # how long a worker may take to close before it is ended
_FAULT_BYTES = 1024
_STEP_PENDING = "finish the step that was started first"
_NO_STEP = "no step was started"

Fields = dict[str, npt.NDArray[Any]]


class WorkerError(RuntimeError):
    """The environment raised in its worker; the message holds the worker's traceback."""


class WorkerDied(RuntimeError):
    """The worker process ended by itself (killed, out of memory, crashed library)."""


class InProcess:
    """Gives an environment of this process the interface of a worker."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._pending: Action | None = None

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    def reset(self) -> TimeStep:
        self._check_idle()
        return self._env.reset()

    def step(self, action: Action) -> TimeStep:
        self._check_idle()
        return self._env.step(action)

    def begin_step(self, action: Action) -> None:
        self._check_idle()
        self._pending = self.spec.actions.checked(action)

    def step_ready(self) -> bool:
        return self._pending is not None

    def finish_step(self) -> TimeStep:
        if self._pending is None:
            raise RuntimeError(_NO_STEP)
        action, self._pending = self._pending, None
        return self._env.step(action)

    def snapshot(self) -> Snapshot:
        self._check_idle()
        return self._env.snapshot()

    def restore(self, snapshot: Snapshot) -> TimeStep:
        self._check_idle()
        return self._env.restore(snapshot)

    def ask_to_close(self) -> None:
        """Nothing else could do so in between."""

    def close(self) -> None:
        self._env.close()

    def _check_idle(self) -> None:
        if self._pending is not None:
            raise RuntimeError(_STEP_PENDING)


class WorkerEnvironment:
    """An environment that lives in a spawned process; built there by `build`.

    The constructor only starts the process, so that several can start side by side; the first use waits
    until the environment is built, and raises what its construction raised.
    """

    def __init__(self, build: Callable[[], Environment], name: str) -> None:
        context = multiprocessing.get_context("spawn")  # GL does not survive a fork
        self._name = name
        self._spec: EnvSpec | None = None
        self._memory: SharedMemory | None = None
        self._fields: Fields = {}
        self._consumed = 0  # the last request whose answer was handed to the caller
        self._pipe_in_use = False
        self._closed = False
        self._asked_to_close = False
        with _signals_blocked(), current_folder_ignored():
            resource_tracker.ensure_running()  # Python's own process, which the semaphores would start
        self._request = context.Semaphore(0)
        self._response = context.Semaphore(0)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(build, theirs, self._request, self._response), name=name, daemon=True
        )
        with _signals_blocked(), current_folder_ignored():
            self._process.start()
        theirs.close()
        close_at_exit(self)

    @property
    def spec(self) -> EnvSpec:
        if self._spec is None:
            self._check_open()
            self._wait_until_built()
        assert self._spec is not None
        return self._spec

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
        checked = self.spec.actions.checked(action)
        self._check_idle()
        self._fields["action"][...] = checked
        self._submit(_STEP)

    def step_ready(self) -> bool:
        """Also true where the worker died: there is nothing left to wait for."""
        return int(self._fields["answered"]) == int(self._fields["sequence"]) or not self._process.is_alive()

    def finish_step(self) -> TimeStep:
        """The step that was started; if interrupted while it waits, it can be called again."""
        self._check_open()
        if self._spec is None or not self._outstanding(_STEP):
            raise RuntimeError(_NO_STEP)
        self._await_answer()
        if self._fields["replied"]:
            self._consume_reply()
        step = _read_step(self._fields)
        self._consumed = int(self._fields["sequence"])
        return step

    def snapshot(self) -> Snapshot:
        result: Snapshot = self._call("snapshot")
        return result

    def restore(self, snapshot: Snapshot) -> TimeStep:
        result: TimeStep = self._call("restore", snapshot)
        return result

    def ask_to_close(self) -> None:
        """The worker begins to close; nothing but `close` may follow."""
        if not self._closed and not self._asked_to_close and self._memory is not None:
            self._asked_to_close = True
            if self._process.is_alive():
                self._submit(_CLOSE)

    def close(self) -> None:
        """Ends the worker; safe to call again, after a failure, and in the middle of a step."""
        if self._closed:
            return
        self._closed = True
        try:
            self._end_process()
        except BaseException:
            self._process.kill()  # whoever interrupts a farewell wants none
            raise
        finally:
            self._release_memory()
            self._pipe.close()

    def _end_process(self) -> None:
        if self._process.is_alive() and self._memory is not None:
            if not self._asked_to_close:
                self._submit(_CLOSE)
            self._process.join(_GRACE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_GRACE_SECONDS)

    def _release_memory(self) -> None:
        self._fields = {}
        if self._memory is None:
            self._open_unused_memory()
        if self._memory is not None:
            self._memory.close()

    def _open_unused_memory(self) -> None:
        """A worker that was built and never asked for anything still has a named segment to remove."""
        if self._pipe_in_use:
            return
        with contextlib.suppress(EOFError, OSError):
            if self._pipe.poll():
                kind, value = self._pipe.recv()
                if kind == "ok":
                    self._attach(value[1])

    def __del__(self) -> None:
        if hasattr(self, "_process"):  # not where the constructor failed
            self.close()

    def _wait_until_built(self) -> None:
        try:
            spec, memory_name = self._opened(self._read_message())
            self._pipe_in_use = False
            self._fields = _fields_in(self._attach(memory_name), spec)
            self._spec = spec
        except BaseException:
            self.close()
            raise

    def _attach(self, memory_name: str) -> SharedMemory:
        self._memory = SharedMemory(memory_name)
        # Both sides have it open: without a name nothing can be left behind.
        self._memory.unlink()
        return self._memory

    def _call(self, method: str, *arguments: Any) -> Any:
        message = ForkingPickler.dumps((method, arguments))
        _ = self.spec  # built by now
        self._check_idle()
        self._pipe_in_use = True
        self._submit(_CALL)
        try:
            # After the semaphore: the worker reads while we write, so no pipe is ever full for good.
            self._pipe.send_bytes(message)
        except OSError:
            raise self._death() from None
        self._pipe_in_use = False
        self._await_answer()
        return self._consume_reply()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self._name}: this worker is closed")

    def _check_idle(self) -> None:
        self._check_open()
        if not self._process.is_alive():
            raise self._death()
        if self._outstanding(_STEP):
            raise RuntimeError(_STEP_PENDING)
        if self._outstanding(_CALL):  # it was interrupted: nothing waits for its answer any more
            self._discard_answer()

    def _outstanding(self, command: int) -> bool:
        """Whether a request of this kind was made whose answer was not handed out."""
        return int(self._fields["sequence"]) != self._consumed and int(self._fields["command"]) == command

    def _discard_answer(self) -> None:
        self._check_pipe()
        self._await_answer()
        with contextlib.suppress(UserError, WorkerError):  # whoever could have been told has gone
            self._consume_reply()

    def _check_pipe(self) -> None:
        """A message that was sent or read in part cannot be taken up again."""
        if self._pipe_in_use:
            raise RuntimeError(f"{self._name}: interrupted in the middle of a message; close this worker")

    def _submit(self, command: int) -> None:
        self._fields["command"][...] = command
        # The number comes last: from here on the request exists, and `_await_answer` will deliver it
        # even if the next line is never reached.
        self._fields["sequence"][...] += 1
        self._request.release()

    def _await_answer(self) -> None:
        sequence = int(self._fields["sequence"])
        while True:
            answered = self._response.acquire(timeout=_LIVENESS_SECONDS)
            if int(self._fields["answered"]) == sequence:
                return
            if answered:
                continue  # left over from an exchange that was interrupted
            if not self._process.is_alive():
                raise self._death()
            if int(self._fields["received"]) != sequence:
                self._request.release()

    def _consume_reply(self) -> Any:
        """The reply to the current request, which is done then; raises what the worker raised."""
        message = self._read_message()
        self._consumed = int(self._fields["sequence"])
        self._pipe_in_use = False
        return self._opened(message)

    def _read_message(self) -> tuple[str, Any]:
        """Leaves the pipe marked as in use: the caller knows when the message is safe."""
        self._check_pipe()
        connection.wait([self._pipe, self._process.sentinel])
        self._pipe_in_use = True
        try:
            message: tuple[str, Any] = self._pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None
        return message

    def _opened(self, message: tuple[str, Any]) -> Any:
        kind, value = message
        if kind == "user error":
            raise value
        if kind == "error":
            raise WorkerError(f"{self._name} failed in its worker process:\n{value}")
        return value

    def _death(self) -> WorkerDied:
        self._process.join(_GRACE_SECONDS)
        code = self._process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        message = f"{self._name}: the worker process {self.pid} died ({how})."
        if self._spec is None and code == 1:
            message += " A script that starts workers needs `if __name__ == '__main__':` around its code."
        return WorkerDied(message)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A process started inside never hears of Ctrl-C, SIGTERM or SIGHUP: its parent decides when it ends.

    From its first moment on: signals often go to a whole group, also while a worker still imports.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fields_in(memory: SharedMemory, spec: EnvSpec) -> Fields:
    """Views of what parent and worker share, one for each name."""
    layout = _layout(spec)
    record: npt.NDArray[Any] = np.ndarray((), layout, buffer=memory.buf)
    return {name: record[name] for name in layout.names or ()}


def _layout(spec: EnvSpec) -> np.dtype[Any]:
    fields = [
        ("command", np.uint8),
        ("sequence", np.int64),  # the last request made
        ("received", np.int64),  # the last request that the worker has started
        ("answered", np.int64),  # the last request the worker has done
        ("replied", np.bool_),  # whether its answer is (also) in the pipe
        ("action", spec.actions.dtype, spec.actions.shape),
        ("observation", np.uint8, spec.observation_shape),
        ("reward", np.float64),
        ("score", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("frames", np.int64),
        ("proprioception", np.float64, (spec.proprioception_size,)),
        ("fault", f"S{_FAULT_BYTES}"),
        ("lost_life", np.bool_),
    ]
    return np.dtype(fields, align=True)


def _write_step(fields: Fields, step: TimeStep) -> None:
    fields["observation"][...] = step.observation
    fields["reward"][...] = step.reward
    fields["score"][...] = step.score
    fields["terminated"][...] = step.terminated
    fields["truncated"][...] = step.truncated
    fields["frames"][...] = step.frames
    fields["proprioception"][...] = step.proprioception
    fields["fault"][...] = step.fault.encode()[:_FAULT_BYTES]
    fields["lost_life"][...] = step.lost_life


def _read_step(fields: Fields) -> TimeStep:
    return TimeStep(
        observation=fields["observation"].copy(),
        reward=float(fields["reward"]),
        score=float(fields["score"]),
        terminated=bool(fields["terminated"]),
        truncated=bool(fields["truncated"]),
        frames=int(fields["frames"]),
        proprioception=fields["proprioception"].copy(),
        fault=bytes(fields["fault"][()]).decode(errors="replace"),
        lost_life=bool(fields["lost_life"]),
    )


def _serve(build: Callable[[], Environment], pipe: Any, request: Any, response: Any) -> None:
    """The worker's life: build the environment, answer requests until told to close."""
    faulthandler.enable()  # a crash in a library leaves a trace
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        env = build()
        memory = SharedMemory(create=True, size=_layout(env.spec).itemsize)
        fields = _fields_in(memory, env.spec)
        for name in ("sequence", "received", "answered"):
            fields[name][...] = 0
    except Exception as error:
        pipe.send(_failure(error))
        return
    try:
        pipe.send(("ok", (env.spec, memory.name)))
        _answer_requests(env, fields, pipe, request, response)
        del fields
        memory.close()
    finally:
        env.close()


def _answer_requests(env: Environment, fields: Fields, pipe: Any, request: Any, response: Any) -> None:
    while True:
        _wait_for(request)
        sequence, command = int(fields["sequence"]), int(fields["command"])
        if sequence == int(fields["received"]):
            continue  # delivered twice
        fields["received"][...] = sequence
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
        fields["replied"][...] = reply is not None
        fields["answered"][...] = sequence
        response.release()
        if reply is not None:
            pipe.send(reply)


def _wait_for(request: Any) -> None:
    """Looks for the next request for a moment before it sleeps: waking up a core is what costs most."""
    give_up = time.perf_counter() + _AWAKE_SECONDS
    while time.perf_counter() < give_up:
        if request.acquire(block=False):
            return
    request.acquire()


def _failure(error: Exception) -> tuple[str, Any]:
    if isinstance(error, UserError):
        return ("user error", error)
    return ("error", "".join(traceback.format_exception(error)).rstrip())


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
