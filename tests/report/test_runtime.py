import pytest

from ogspr.analysis.grid import make_grid
from ogspr.analysis.runs import collect, read_run
from ogspr.report.runtime import runtime_table, seconds_a_step
from ogspr.report.table import NOTHING
from tests.analysis.folders import MANIFEST, OPTIONS, write_run, write_table


def run_with(path, rows, random_steps=0, **more):
    agent = OPTIONS["agent"] | {"random_steps": random_steps}
    folder = write_run(path, {0: 1.0}, agent=agent, **more)
    write_table(folder / "system.csv", ("agent_steps", "unix_time", "seconds"), rows)
    return folder


def test_the_time_of_a_step_is_that_of_steps_with_updates(tmp_path):
    # Random steps are quick, the first row with updates holds the compilation, then 4 ms a step.
    rows = [(1000, 1, 1.0), (2000, 2, 2.0), (3000, 80, 80.0), (4000, 84, 84.0), (5000, 88, 88.0)]
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows, 2000))) == pytest.approx(0.004)


@pytest.mark.parametrize("begin", [50.0, 150.0])
def test_a_clock_that_starts_anew_is_no_time(tmp_path, begin):
    """A resumed run, an hour later: its process is older or younger than the one before was."""
    rows = [(1000, 100, 100.0), (2000, 104, 104.0), (3000, 3700, begin), (4000, 3704, begin + 4.0)]
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows))) == pytest.approx(0.004)


@pytest.mark.parametrize("rows", [[], [(1000, 0, 1.0)], [("x", "y", "z"), (1, 2, 3)]])
def test_too_little_is_known(tmp_path, rows):
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows))) is None


@pytest.mark.parametrize(
    "settings", [None, "no", {"agent": None}, {"agent": "x"}, {"agent": {"random_steps": "x"}}]
)
def test_damaged_settings_do_no_harm(tmp_path, settings):
    manifest = {"settings": settings, "libraries": settings, "environment": settings}
    folder = write_run(
        tmp_path / "a", {0: 1.0}, manifest=manifest, **(settings if isinstance(settings, dict) else {})
    )
    write_table(folder / "system.csv", ("agent_steps", "unix_time", "seconds"), [(1, 0, 0), (2, 1, 1)])
    assert runtime_table(make_grid(collect([tmp_path]).runs)) is not None


def test_the_table_has_ours_and_the_papers(tmp_path):
    times = [(1000, 0, 0.0), (2000, 7.2, 7.2)]
    run_with(tmp_path / "a", times, task="dmc:cheetah-run")
    run_with(tmp_path / "b", [(1000, 0, 0.0), (2000, 14.4, 14.4)], task="dmc:dog-run")
    other = MANIFEST | {"settings": {"gpu": None, "cores": 2, "parameters": "many", "seeds": [1]}}
    run_with(tmp_path / "c", times, task="dmc:dog-run", seed=1, manifest=other)
    write_run(tmp_path / "d", {0: 1.0}, preset="ogspr-op", manifest={})
    table = runtime_table(make_grid(collect([tmp_path]).runs))
    rows = {row[0].text: row[1:] for row in table.rows}
    parameters, hours, *paper = rows["OG-SPR, cheetah-run, H200"]
    assert parameters.text == "5.40"
    assert (hours.text, hours.note) == ("1.00", "median of 1 run, 2 in one process")
    assert [cell.text for cell in paper] == ["5.4", "14.2"]
    assert [cell.text for cell in rows["OG-SPR, dog-run, H200"]] == ["5.40", "2.00", NOTHING, NOTHING]
    assert [cell.text for cell in rows["OG-SPR, dog-run, 2 CPU cores"]] == [NOTHING, "1.00", NOTHING, NOTHING]
    assert rows["DreamerV3, cheetah-run"][2].text == "5.3"
    assert not any("OP" in name for name in rows)


def test_runs_of_atari_have_no_part_in_it(tmp_path):
    run_with(tmp_path / "a", [(1000, 0, 0.0), (2000, 7.2, 7.2)], task="atari:Pong")
    assert runtime_table(make_grid(collect([tmp_path]).runs)) is None
