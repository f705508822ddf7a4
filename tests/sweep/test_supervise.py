"""One attempt at a unit: it ends well whoever dies, waits for a lock, and is ended where it hangs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ogspr.records.run import RunFolder
from ogspr.sweep.state import SweepFolder
from ogspr.sweep.supervise import Supervised, work_through
from tests.sweep.grids import FakeLaunch, steps_made, unit, wait_for


@pytest.fixture
def sweep(tmp_path):
    found = SweepFolder(tmp_path / "runs")
    found.begin([])
    return found


def never() -> bool:
    return False


def started(launch, wanted):
    return Supervised(launch, launch.sweep.read(wanted))


def pids(launch):
    """Of the stand-ins that have begun."""
    text = launch.audit.read_text() if launch.audit.exists() else ""
    return [int(line.split()[0]) for line in text.splitlines() if line.endswith("begins")]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_unit_that_works_is_done_in_one_attempt(sweep, tmp_path):
    launch, wanted = FakeLaunch(sweep), unit(tmp_path)
    state = work_through(launch, wanted, never, lambda _: None)
    assert (state.finished, [each.verdict for each in state.attempts]) == (True, ["done"])
    assert steps_made(launch) == list(range(1, 101))


def test_a_unit_that_is_killed_continues_from_its_checkpoint(sweep, tmp_path):
    launch, wanted = FakeLaunch(sweep, mode="crashes once"), unit(tmp_path)
    state = work_through(launch, wanted, never, lambda _: None)
    assert [(each.verdict, each.code) for each in state.attempts] == [("crashed", 137), ("done", 0)]
    assert steps_made(launch) == list(range(1, 101))  # nothing twice: it was killed at a checkpoint


@pytest.mark.parametrize(("code", "verdict"), [("2", "mistake"), ("3", "diverged")])
def test_what_cannot_be_helped_is_tried_once(sweep, tmp_path, code, verdict):
    state = work_through(FakeLaunch(sweep, mode=code), unit(tmp_path), never, lambda _: None)
    assert [each.verdict for each in state.attempts] == [verdict]
    assert state.condition(time.time()) == "failed"


def test_a_stop_lets_it_save(sweep, tmp_path):
    launch, wanted = FakeLaunch(sweep), unit(tmp_path, agent_steps=10**6)
    attempt = started(launch, wanted)
    wait_for(lambda: launch.audit.exists() and len(steps_made(launch)) > 5)
    attempt.ask_to_end()
    assert attempt.wait() == "stopped"
    assert launch.audit.read_text().splitlines()[-1].endswith("saved")
    assert sweep.read(wanted).steps == steps_made(launch)[-1]


def test_a_stop_of_the_sweep_ends_it_too(sweep, tmp_path):
    launch, wanted = FakeLaunch(sweep), unit(tmp_path, agent_steps=10**6)
    attempt = started(launch, wanted)
    wait_for(lambda: launch.audit.exists() and len(steps_made(launch)) > 5)
    sweep.stop.touch()
    assert attempt.wait(lambda: sweep.stop_requested) == "stopped"


@pytest.mark.parametrize("who", ["the process that watches", "the guard"])
def test_a_run_saves_whoever_is_killed(tmp_path, who):
    """In a process of its own, which is then killed: its run hears SIGTERM, and has the time to save."""
    script = f"""
from pathlib import Path
from ogspr.sweep.state import SweepFolder
from ogspr.sweep.supervise import Supervised
from tests.sweep.grids import FakeLaunch, unit
sweep = SweepFolder(Path({str(tmp_path / "runs")!r}))
sweep.begin([])
launch, wanted = FakeLaunch(sweep), unit(Path({str(tmp_path)!r}), agent_steps=10**6)
Supervised(launch, sweep.read(wanted)).wait()
"""
    watcher = subprocess.Popen([sys.executable, "-c", script])
    launch = FakeLaunch(SweepFolder(tmp_path / "runs"))
    wait_for(lambda: pids(launch) and len(steps_made(launch)) > 5)
    (run,) = pids(launch)
    guard = int(Path(f"/proc/{run}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(watcher.pid if who == "the process that watches" else guard, signal.SIGKILL)
    wait_for(lambda: gone(run))
    assert launch.audit.read_text().splitlines()[-1].endswith("saved")
    watcher.kill()
    watcher.wait()
    wait_for(lambda: gone(guard))


def test_what_hangs_is_ended_and_counts_as_a_failure(sweep, tmp_path):
    launch = FakeLaunch(sweep, hang_minutes=0.02, mode="hangs")
    wanted = unit(tmp_path)
    attempt = started(launch, wanted)
    assert attempt.wait() == "hung"
    assert sweep.read(wanted).reason == "it stopped making progress"
    assert work_through(launch, wanted, never, lambda _: None).finished


def test_a_lock_is_waited_for(sweep, tmp_path):
    """The process before may still be saving."""
    folder = RunFolder(tmp_path / "busy")
    folder.lock()
    free = tmp_path / "free"

    class Locked(FakeLaunch):
        def command(self, unit):  # noqa: ARG002
            code = "import sys, pathlib; sys.exit(0 if pathlib.Path(sys.argv[1]).exists() else 75)"
            return [sys.executable, "-c", code, str(free)]

    attempt = started(Locked(sweep), unit(tmp_path))
    began = time.monotonic()
    while time.monotonic() - began < 1.5:
        assert attempt.poll() is None
        time.sleep(0.05)
    free.touch()
    assert attempt.wait() == "done"
    folder.unlock()


def test_a_program_that_does_not_exist_is_a_failure_with_a_reason(sweep, tmp_path):
    class Nothing(FakeLaunch):
        def command(self, unit):  # noqa: ARG002
            return ["/nowhere/python"]

    wanted = unit(tmp_path)
    assert started(Nothing(sweep), wanted).wait() == "crashed"
    assert "/nowhere/python cannot be started" in sweep.log(wanted).read_text()


def test_children_do_not_inherit_what_this_machine_found_out(sweep, tmp_path, monkeypatch):
    """Else all units would draw on the GPU that the launcher has looked at."""
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")

    class Shows(FakeLaunch):
        def command(self, unit):  # noqa: ARG002
            return ["env"]

    wanted = unit(tmp_path)
    launch = Shows(sweep, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert started(launch, wanted).wait() == "done"
    lines = sweep.log(wanted).read_text().splitlines()
    assert "CUDA_VISIBLE_DEVICES=1" in lines
    assert not [line for line in lines if line.startswith("MUJOCO_EGL_DEVICE_ID")]
