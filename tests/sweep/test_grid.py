"""Grid files: which runs they mean, and every mistake in them told before anything starts."""

import time
from pathlib import Path

import pytest

from ogspr.errors import UserError
from ogspr.sweep.grid import grid_names, read_grid, task_sets
from ogspr.sweep.plan import Speeds, fitted, needs
from ogspr.sweep.state import SweepFolder
from tests.sweep.grids import TASK, write_grid


def grid_of(tmp_path, text, out=None):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return read_grid(str(path), out)


def test_a_grid_is_tasks_times_presets_with_their_seeds(tmp_path):
    grid = grid_of(
        tmp_path,
        """
        seeds = [1, 2]
        out = "somewhere"
        [[cells]]
        tasks = ["dmc:walker-walk", "atari:Pong"]
        presets = ["ogspr", "mrq"]
        [[cells]]
        tasks = "dmc:walker-walk"
        presets = "ogspr"
        name = "large"
        seeds = [7]
        options = { agent.batch_size = 512, agent_steps = 1000 }
        """,
    )
    found = [(unit.task, unit.name, unit.seeds, str(unit.folder), unit.agent_steps) for unit in grid.units]
    assert found == [
        ("dmc:walker-walk", "ogspr", (1, 2), "somewhere/dmc-walker-walk/ogspr", 500_000),
        ("dmc:walker-walk", "mrq", (1, 2), "somewhere/dmc-walker-walk/mrq", 500_000),
        ("atari:Pong", "ogspr", (1, 2), "somewhere/atari-Pong/ogspr", 100_000),
        ("atari:Pong", "mrq", (1, 2), "somewhere/atari-Pong/mrq", 100_000),
        ("dmc:walker-walk", "large", (7,), "somewhere/dmc-walker-walk/large", 1000),
    ]
    assert grid.units[-1].settings().agent.batch_size == 512
    assert len({unit.id for unit in grid.units}) == 5


def test_out_of_the_command_takes_the_place_of_the_files(tmp_path):
    text = '[[cells]]\ntasks = "dmc:walker-walk"\n'
    assert grid_of(tmp_path, text, Path("there")).units[0].folder == Path("there/dmc-walker-walk/ogspr")


def test_the_sets_are_the_papers():
    assert {name: len(tasks) for name, tasks in task_sets().items()} == {
        "dmc28": 28,
        "atari26": 26,
        "humanoid": 3,
    }


@pytest.mark.parametrize(
    ("name", "units", "runs"),
    [
        ("table1", 112, 560),
        ("table2", 196, 980),
        ("table3", 78, 390),
        ("table5", 4, 4),
        ("table7", 12, 60),
        ("humanoid2m", 12, 60),
    ],
)
def test_the_papers_experiments_ship(name, units, runs):
    grid = read_grid(name)
    assert (len(grid.units), sum(len(unit.seeds) for unit in grid.units)) == (units, runs)
    assert name in grid_names()


def test_humanoid_runs_are_as_long_as_the_papers():
    assert {unit.agent_steps for unit in read_grid("humanoid2m").units} == {2_000_000}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", r"has no \[\[cells\]\]"),
        ("seeds = [1", "is not TOML"),
        ("[[cells]]\n", "cell 1 names no tasks"),
        ('[[cells]]\ntasks = "dmc29"', "unknown set of tasks 'dmc29'; did you mean dmc28"),
        ('[[cells]]\ntasks = "dmc:wlker-walk"', "did you mean dmc:walker-walk"),
        ('[[cells]]\ntasks = "dmc28"\npresets = "ogsrp"', "unknown preset 'ogsrp'"),
        ('[[cells]]\ntasks = "dmc28"\npreset = "ogspr"', "'preset'; did you mean presets"),
        ('[[cells]]\ntasks = "dmc28"\noptions = { agent_steps = 5 }', "so it needs a name"),
        ('[[cells]]\ntasks = "dmc28"\nname = "a/b"', "a name has letters"),
        ('[[cells]]\ntasks = "dmc28"\nname = "x"\npresets = ["mrq", "ogspr"]', "one name for 2 presets"),
        ('[[cells]]\ntasks = "dmc28"\nname = "x"\noptions = { agent.batch = 5 }', "did you mean batch_size"),
        ('[[cells]]\ntasks = "dmc28"\nname = "x"\noptions = { agent_steps = 0 }', "must be at least 1"),
        ('[[cells]]\ntasks = "dmc28"\nseeds = [1, 1]', "names a seed twice"),
        ('[[cells]]\ntasks = "humanoid"\n[[cells]]\ntasks = "dmc28"', "with the same seed"),
        ('sedes = [1]\n[[cells]]\ntasks = "dmc28"', "did you mean seeds"),
    ],
)
def test_mistakes_in_a_grid_are_told(tmp_path, text, expected):
    with pytest.raises(UserError, match=expected):
        grid_of(tmp_path, text)


def test_all_cells_with_a_mistake_are_told_at_once(tmp_path):
    text = '[[cells]]\ntasks = "dmc:wlker-walk"\n[[cells]]\ntasks = "atari:Pnog"\n'
    with pytest.raises(UserError) as told:
        grid_of(tmp_path, text)
    assert "walker-walk" in str(told.value) and "Pong" in str(told.value)


def test_a_file_that_cannot_be_read_and_a_name_that_does_not_exist():
    with pytest.raises(UserError, match=r"cannot read nowhere\.toml: No such file"):
        read_grid("nowhere.toml")
    with pytest.raises(UserError, match="unknown grid 'tabel1'; did you mean table1"):
        read_grid("tabel1")


def test_seeds_that_do_not_fit_on_a_gpu_get_units_of_their_own():
    (whole,) = {len(unit.seeds) for unit in read_grid("table1").units}
    assert whole == 5
    grid = read_grid("table1")
    # 10.6 GB of replay and 1.4 GB for the rest: three seeds in 0.95 * 48 - 1 GB.
    of_walker = [unit for unit in fitted(grid, 48e9).units if unit.task == "dmc:walker-walk"]
    parts = [unit for unit in of_walker if unit.name == "ogspr"]
    assert len({unit.folder for unit in parts}) == 1
    assert [unit.seeds for unit in parts] == [(42, 99, 123), (520, 668)]
    assert len({unit.id for unit in parts}) == 2
    with pytest.raises(UserError, match="needs 24 GB of GPU memory for one seed, and there are 16"):
        fitted(grid, 16e9)


def test_a_unit_needs_what_its_runs_take():
    grid = read_grid("table5")
    found = needs(grid.units[0], Speeds({}))
    assert found.hours == pytest.approx(4.47 * 500_000 / 3.6e6)  # milliseconds of results/bench-train
    assert found.gpu_bytes == pytest.approx(501_000 * (3 * 84 * 84 + 44) + 2.4e9)  # measured: 12.0 GB
    assert found.gpu_bytes == pytest.approx(12.0e9, rel=0.12)
    assert (found.cores, found.peak_disk_bytes > 10e9, found.kept_disk_bytes < 1e9) == (6, True, True)
    measured = needs(grid.units[0], Speeds({("ogspr", "dmc", 1): 9.0}))
    assert (measured.hours, measured.source) == (pytest.approx(1.25), "measured in this sweep")


def test_two_thousand_units_are_planned_and_shown_in_seconds(tmp_path, ogspr_here):
    seeds = list(range(5))
    presets = ["ogspr", "mrq", "drqv2", "anonmethod", *(f"x{i}" for i in range(68))]
    cells = "".join(f'[[cells]]\ntasks = "dmc28"\npresets = "ogspr"\nname = "{name}"\n' for name in presets)
    path = tmp_path / "grid.toml"
    path.write_text(f'seeds = {seeds}\nout = "{tmp_path / "runs"}"\n{cells}')
    began = time.process_time()
    grid = read_grid(str(path))
    states = [SweepFolder(grid.out).read(unit) for unit in grid.units]
    assert len(states) == 2016
    assert sum(needs(unit, Speeds({})).hours for unit in grid.units) > 1000
    assert time.process_time() - began < 20  # a bound for a busy machine: it takes a second or two
    done = ogspr_here("sweep", "status", str(path))
    assert done.returncode == 0
    assert "2016 waiting" in done.stdout


def test_code_that_a_grid_names_runs_only_if_the_user_names_it(tmp_path, ogspr_here):
    path = write_grid(tmp_path)
    done = ogspr_here("sweep", "run", str(path))
    assert done.returncode == 2
    assert f"would run the code {TASK}; if you trust it, say so: --code {TASK}" in done.stderr
    assert not (tmp_path / "runs").exists()
