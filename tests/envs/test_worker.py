"""Worker processes: the same environment, and every way in which one can end."""

import gc
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from ogspr.envs import SplitStepEnvironment, WorkerDied, WorkerError, launch, make
from ogspr.errors import UserError
from tests.helpers.trajectories import ROOT, continuation, fingerprint, play

WORLDS = "tests.helpers.worlds"
ACTION = np.asarray(0)


@pytest.fixture
def open_worker():
    opened = []

    def build(name: str):
        opened.append(launch(f"{WORLDS}:{name}", seed=0))
        _ = opened[-1].spec  # waits until it is built
        return opened[-1]

    yield build
    for env in opened:
        env.close()


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("name", ["dmc:cartpole-swingup", "atari:Pong", f"{WORLDS}:counter"])
def test_a_worker_gives_what_the_environment_gives(name):
    here, there = make(name, seed=1, training=True), launch(name, seed=1, training=True)
    assert isinstance(there, SplitStepEnvironment)
    assert there.spec == here.spec
    assert fingerprint(here.reset()) == fingerprint(there.reset())
    assert play(here, 8, seed=0) == play(there, 8, seed=0)
    snapshot = there.snapshot()
    expected = continuation(here)
    assert continuation(there) == expected
    there.restore(snapshot)
    assert continuation(there) == expected
    here.close()
    there.close()


@pytest.mark.parametrize("worker", [True, False])
def test_a_step_can_be_begun_and_finished_later(worker):
    env = launch(f"{WORLDS}:counter", seed=0, worker=worker)
    env.reset()
    with pytest.raises(ValueError, match="expected an action index"):
        env.begin_step(np.asarray(9))
    env.begin_step(ACTION)
    for call in (lambda: env.begin_step(ACTION), lambda: env.step(ACTION), env.reset, env.snapshot):
        with pytest.raises(RuntimeError, match="finish the step"):
            call()
    assert env.finish_step().reward == 1.0
    with pytest.raises(RuntimeError, match="no step was started"):
        env.finish_step()
    assert env.step(ACTION).reward == 2.0
    env.close()


def test_observations_handed_out_are_not_overwritten(open_worker):
    env = open_worker("counter")
    env.reset()
    first = env.step(ACTION).observation
    kept = first.copy()
    env.step(ACTION)
    np.testing.assert_array_equal(first, kept)


def test_a_raising_environment_shows_its_traceback_and_the_worker_lives_on(open_worker):
    env = open_worker("raising")
    env.reset()
    env.step(ACTION)
    env.step(ACTION)
    with pytest.raises(WorkerError, match=r"in _raise[\s\S]*ValueError: the world fell apart"):
        env.step(ACTION)
    assert env.reset().reward == 0.0


@pytest.mark.parametrize(("name", "how"), [("exiting", "exit code 7"), ("killed", "signal SIGKILL")])
def test_a_dying_worker_is_reported_at_once(open_worker, name, how):
    env = open_worker(name)
    env.reset()
    env.step(ACTION)
    env.step(ACTION)
    start = time.monotonic()
    with pytest.raises(WorkerDied, match=how):
        env.step(ACTION)
    assert time.monotonic() - start < 5
    for call in (env.finish_step, env.reset, env.snapshot, lambda: env.step(ACTION)):
        with pytest.raises(WorkerDied, match=how):
            call()


def interrupt_once(monkeypatch, thing, method, *, after: bool):
    """The next call of `method` is interrupted, as by Ctrl-C, before or after it did its work."""
    real = getattr(thing, method)

    def interrupted(*arguments, **options):
        monkeypatch.setattr(thing, method, real)
        if after:
            real(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(thing, method, interrupted)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("semaphore", ["_request", "_response"])
def test_an_interrupted_step_can_be_finished(open_worker, monkeypatch, semaphore, after):
    env = open_worker("endless")
    env.reset()
    method = {"_request": "release", "_response": "acquire"}[semaphore]
    interrupt_once(monkeypatch, getattr(env, semaphore), method, after=after)
    with pytest.raises(KeyboardInterrupt):
        env.step(ACTION)
    with pytest.raises(RuntimeError, match="finish the step"):
        env.snapshot()
    rewards = [env.finish_step().reward, *(env.step(ACTION).reward for _ in range(5))]
    assert rewards == [1, 2, 3, 4, 5, 6], "a step was lost or done twice"
    env.snapshot()


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_call_is_forgotten_and_the_next_one_answered(open_worker, monkeypatch, after):
    env = open_worker("endless")
    env.reset()
    env.step(ACTION)
    interrupt_once(monkeypatch, env._response, "acquire", after=after)
    with pytest.raises(KeyboardInterrupt):
        env.snapshot()
    assert env.reset().score == 0.0
    assert env.step(ACTION).reward == 1.0


@pytest.mark.parametrize("method", ["send_bytes", "recv"])
def test_a_message_cut_in_half_is_an_error_and_no_hang(open_worker, monkeypatch, method):
    env = open_worker("endless")
    env.reset()
    interrupt_once(monkeypatch, env._pipe, method, after=False)
    with pytest.raises(KeyboardInterrupt):
        env.snapshot()
    with pytest.raises(RuntimeError, match="interrupted in the middle of a message; close"):
        env.reset()


def test_real_signals_at_any_moment_leave_a_worker_that_goes_on(open_worker):
    """A timer interrupts hundreds of steps wherever they are; none may hang, none is done twice."""
    env = open_worker("endless")
    env.reset()
    rng = np.random.default_rng(0)
    armed = False

    def interrupt(*_):
        if armed:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    rewards, interrupts = [], 0
    try:
        for _ in range(600):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 3e-4)))
                reward = env.step(ACTION).reward
                armed = False
            except KeyboardInterrupt:
                armed = False
                interrupts += 1
                try:
                    reward = env.finish_step().reward
                except RuntimeError as error:
                    assert "no step was started" in str(error)  # interrupted before or after it
                    continue
            rewards.append(reward)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupts > 50, "the test hardly interrupted anything"
    assert all(later > earlier for earlier, later in itertools.pairwise(rewards))


def test_a_worker_that_nobody_holds_any_more_ends():
    env = launch(f"{WORLDS}:endless", seed=0)
    env.reset()
    pid = env.pid
    del env
    gc.collect()
    assert wait_until_dead(pid)


def test_several_workers_start_side_by_side():
    """`launch` does not wait: all three processes exist before any environment is built."""
    envs = [launch(f"{WORLDS}:counter", seed=seed) for seed in range(3)]
    assert all(env._spec is None for env in envs)
    assert all(alive(env.pid) for env in envs)
    assert [env.reset().reward for env in envs] == [0.0] * 3
    for env in envs:
        env.close()


def test_a_worker_that_was_built_and_never_used_leaves_nothing():
    env = launch(f"{WORLDS}:counter", seed=0)
    assert env._pipe.poll(30), "it was never built"
    [segment] = segments(env.pid)
    assert segment.exists()
    env.close()
    assert not segment.exists()


def test_an_interrupted_close_still_ends_the_worker(open_worker, monkeypatch):
    env = open_worker("slow")
    env.reset()
    env.step(ACTION)
    env.step(ACTION)
    env.begin_step(ACTION)
    interrupt_once(monkeypatch, env._process, "join", after=False)
    with pytest.raises(KeyboardInterrupt):
        env.close()
    assert wait_until_dead(env.pid)


def test_an_argument_that_cannot_be_sent_does_no_harm(open_worker):
    env = open_worker("counter")
    env.reset()
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        env.restore({"name": lambda: None})
    assert env.step(ACTION).reward == 1.0


def test_a_worker_can_be_closed_before_it_is_built():
    env = launch(f"{WORLDS}:counter", seed=0)
    env.close()
    assert not alive(env.pid)
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_a_crash_in_a_library_leaves_a_trace(open_worker, capfd):
    env = open_worker("segfaulting")
    env.reset()
    env.step(ACTION)
    env.step(ACTION)
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        env.step(ACTION)
    assert "Segmentation fault" in capfd.readouterr().err


def test_a_worker_killed_between_steps_is_reported(open_worker):
    env = open_worker("counter")
    env.reset()
    os.kill(env.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        env.step(ACTION)


def test_a_worker_killed_while_a_large_snapshot_is_sent_is_reported(open_worker):
    env = open_worker("counter")
    env.reset()
    os.kill(env.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        env.restore({"name": "x", "source": {"large": np.zeros(10_000_000, np.uint8)}})


def test_an_environment_that_cannot_be_built_shows_why(open_worker):
    with pytest.raises(WorkerError, match="ZeroDivisionError: cannot be built"):
        open_worker("unbuildable")


def test_a_users_mistake_arrives_as_such(open_worker):
    with pytest.raises(UserError, match="needs a moon"):
        open_worker("refusing")


def test_closing_twice_in_the_middle_of_a_step_and_after_is_safe(open_worker):
    env = open_worker("counter")
    env.reset()
    env.begin_step(ACTION)
    env.close()
    env.close()
    assert not alive(env.pid)
    with pytest.raises(RuntimeError, match="closed"):
        env.step(ACTION)


def test_closing_ends_a_worker_that_does_not_answer(open_worker):
    env = open_worker("slow")
    env.reset()
    env.step(ACTION)
    env.step(ACTION)
    env.begin_step(ACTION)
    start = time.monotonic()
    env.close()
    assert time.monotonic() - start < 10
    assert not alive(env.pid)


def test_no_shared_memory_is_left_behind(open_worker):
    env = open_worker("counter")
    env.reset()
    [segment] = segments(env.pid)
    assert not segment.exists(), "the segment still has a name"


def segments(pid: int) -> set[Path]:
    """The shared memory that a process has open."""
    mapped = re.findall(r"(/dev/shm/psm_\w+)", Path(f"/proc/{pid}/maps").read_text())
    return {Path(name) for name in mapped}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


SCRIPT = """
    import sys, time
    import numpy as np
    from ogspr.envs import launch

    if __name__ == "__main__":
        env = launch(sys.argv[1], seed=0, worker=sys.argv[2] == "worker")
        env.reset()
        print(getattr(env, "pid", 0), flush=True)
        {then}
"""
FOREVER = "while True: env.step(np.zeros(env.spec.actions.shape, env.spec.actions.dtype))"


def start_script(folder, then, *arguments):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("{then}", then))
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("name", ["endless", "slow"])
def test_no_orphan_survives_the_kill_of_its_parent(tmp_path, name):
    process, worker = start_script(tmp_path, FOREVER, f"{WORLDS}:{name}", "worker")
    assert alive(worker)
    time.sleep(0.2)
    process.kill()
    assert wait_until_dead(worker)
    process.communicate()


def test_ctrl_c_ends_parent_and_worker_with_one_traceback_of_the_parent(tmp_path):
    process, worker = start_script(tmp_path, FOREVER, f"{WORLDS}:endless", "worker")
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, errors = process.communicate(timeout=20)
    assert wait_until_dead(worker)
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors.splitlines()[-1]


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("where", ["worker", "here"])
@pytest.mark.parametrize("name", ["dmc:cartpole-balance", "atari:Pong"])
@pytest.mark.parametrize("then", ["pass", "env.close()"])
def test_the_interpreter_ends_silently(tmp_path, name, where, then):
    process, _ = start_script(tmp_path, then, name, where)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")
