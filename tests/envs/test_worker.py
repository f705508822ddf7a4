"""Worker processes: the same environment, and every way in which one can end."""

import os
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
    env.begin_step(ACTION)
    with pytest.raises(RuntimeError, match="finish the step"):
        env.begin_step(ACTION)
    assert env.finish_step().reward == 1.0
    with pytest.raises(RuntimeError, match="no step was begun"):
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
    for call in (env.reset, env.snapshot, lambda: env.step(ACTION)):
        with pytest.raises(WorkerDied):
            call()


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
    before = set(Path("/dev/shm").iterdir())
    env = open_worker("counter")
    env.reset()
    new = set(Path("/dev/shm").iterdir()) - before
    assert not [file for file in new if file.name.startswith("psm_")], "the segment still has a name"


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
        env=os.environ | {"PYTHONPATH": str(ROOT)},
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
