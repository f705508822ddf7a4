"""A whole sweep on this machine: what is done is not done again, and what fails does not stop the others."""

import signal
import subprocess
import sys
import time

import pytest

from ogspr.records.checkpoints import progress_of
from ogspr.sweep.driver import Local, drive
from ogspr.sweep.grid import read_grid
from ogspr.sweep.state import SweepFolder
from tests.sweep.cluster_grids import kill, runs_in
from tests.sweep.grids import TABLES, TASK, FakeLaunch, steps_made, unit, wait_for, write_grid


@pytest.fixture
def sweep(tmp_path):
    found = SweepFolder(tmp_path / "runs")
    found.begin([])
    return found


def driven(units, launch, slots=2, stop=lambda: False, most_hours=lambda unit: unit.agent_steps):
    said = []
    launcher = Local(launch, [None] * slots)
    outcome = drive(units, launcher, launch.sweep, report=said.append, stop=stop, most_hours=most_hours)
    return outcome, said


def test_the_longest_begin_first_and_all_are_made_once(sweep, tmp_path):
    units = [unit(tmp_path, name, agent_steps=steps) for name, steps in (("a", 20), ("b", 60), ("c", 40))]
    launch = FakeLaunch(sweep)
    outcome, said = driven(units, launch, slots=1)
    assert len(outcome.of("done")) == 3
    assert [line.split()[-1] for line in said if line.startswith("starting")] == ["b", "c", "a"]
    assert len(steps_made(launch)) == 120
    again, said = driven(units, launch)
    assert (len(again.of("done")), said) == (3, ["3 of 3 units are done"])
    assert len(steps_made(launch)) == 120


class Mixed(FakeLaunch):
    """Units whose names say how they behave."""

    def command(self, unit):
        return FakeLaunch(self.sweep, mode=unit.name).command(unit)


def test_one_bad_unit_does_not_stop_the_others(sweep, tmp_path):
    units = [unit(tmp_path, name, agent_steps=60) for name in ("works", "2", "crashes once", "3")]
    outcome, said = driven(units, Mixed(sweep))
    assert [state.unit.name for state in outcome.of("done")] == ["works", "crashes once"]
    assert [state.unit.name for state in outcome.of("failed")] == ["2", "3"]
    assert any("failed gym:CartPole-v1 2: its settings are refused; see " in line for line in said)
    assert any("will retry gym:CartPole-v1 crashes once: exit code 137" in line for line in said)


def test_a_stop_saves_everything_and_the_next_call_resumes(sweep, tmp_path):
    units = [unit(tmp_path, name, agent_steps=150) for name in "abc"]
    launch = FakeLaunch(sweep)
    outcome, _ = driven(units, launch, stop=lambda: launch.audit.exists() and len(steps_made(launch)) > 20)
    assert outcome.stopped
    assert len(outcome.of("waiting")) == 3
    sweep.begin([])
    outcome, said = driven(units, launch)
    assert len(outcome.of("done")) == 3
    assert any(line.startswith("starting") and " at " in line for line in said)
    assert len(steps_made(launch)) == 450  # nothing twice


# --- with real runs ------------------------------------------------------------------------------


def command(grid, *more):
    sweep = [sys.executable, "-c", "from ogspr.cli import main; main()", "sweep"]
    return [*sweep, "run", str(grid), "--code", TASK, "--slots", "2", *more]


def tables(folder):
    return {path.relative_to(folder): path.read_bytes() for name in TABLES for path in folder.rglob(name)}


def has_begun_to_learn(folder):
    """Every run has a checkpoint, and none is near its end."""
    steps = [
        progress_of(folder / TASK.replace(":", "-") / name / f"seed-{seed}").agent_steps
        for name in ("one", "two")
        for seed in (1, 2)
    ]
    return min(steps) > 40


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(command(write_grid(folder)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 units are done" in done.stdout
    return tables(folder / "runs")


def test_a_driver_that_is_killed_loses_nothing(undisturbed, tmp_path):
    """The next one finds everything in the folders, also where runs of the one before still save."""
    grid = write_grid(tmp_path)
    folder = tmp_path / "runs"
    driver = subprocess.Popen(command(grid), stdout=subprocess.DEVNULL)
    wait_for(lambda: has_begun_to_learn(folder), driver)
    driver.kill()
    driver.wait()
    done = subprocess.run(command(grid), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tables(folder) == undisturbed


def test_runs_that_are_killed_are_resumed(undisturbed, tmp_path):
    grid = write_grid(tmp_path)
    folder = tmp_path / "runs"
    driver = subprocess.Popen(command(grid), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: has_begun_to_learn(folder), driver)
    victims = runs_in(folder)
    assert len(victims) == 2
    kill(*victims)
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, said
    assert "will retry" in said
    assert tables(folder) == undisturbed


@pytest.mark.parametrize("how", ["sweep stop", "Ctrl-C"])
def test_a_sweep_is_stopped_and_resumed(undisturbed, tmp_path, ogspr_here, how):
    grid = write_grid(tmp_path)
    folder = tmp_path / "runs"
    driver = subprocess.Popen(command(grid), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: has_begun_to_learn(folder), driver)
    if how == "Ctrl-C":
        driver.send_signal(signal.SIGINT)
    else:
        done = ogspr_here("sweep", "stop", str(grid))
        assert (done.returncode, "stopped" in done.stdout) == (0, True)
    said, _ = driver.communicate(timeout=60)
    assert driver.returncode == (130 if how == "Ctrl-C" else 0)
    assert "saved" in said and "the same command resumes" in said
    states = [SweepFolder(folder).read(each) for each in read_grid(str(grid)).units]
    assert not any(state.running(time.time()) or state.failures for state in states)
    done = subprocess.run(command(grid), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert tables(folder) == undisturbed


def test_a_unit_by_hand(undisturbed, tmp_path, ogspr_here):
    grid = write_grid(tmp_path, names=("one",))
    (wanted,) = read_grid(str(grid)).units
    done = ogspr_here("sweep", "unit", str(grid), "--unit", wanted.id, "--code", TASK)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {path: rows for path, rows in undisturbed.items() if "one" in path.parts}
    assert tables(tmp_path / "runs") == expected
    done = ogspr_here("sweep", "unit", str(grid), "--unit", "nonsense", "--code", TASK)
    assert (done.returncode, "has no unit 'nonsense'" in done.stderr) == (2, True)


def test_a_settings_mistake_in_one_unit_is_told_with_its_log(tmp_path, ogspr_here):
    grid = write_grid(tmp_path, names=("one",), seeds=(1,))
    broken = grid.read_text().replace("image_size = 36", "image_size = 7")
    grid.write_text(broken)
    done = ogspr_here("sweep", "run", str(grid), "--code", TASK)
    assert done.returncode == 1
    assert "1 unit failed" in done.stderr
    assert "its settings are refused" in done.stdout and "too small for the encoder" in done.stdout
    status = ogspr_here("sweep", "status", str(grid))
    assert "1 failed" in status.stdout and "too small for the encoder" in status.stdout
