import pytest

from ogspr.analysis.grid import make_grid
from ogspr.analysis.runs import collect, read_run
from ogspr.report.runtime import runtime_table, seconds_a_step
from ogspr.report.table import NOTHING
from tests.analysis.folders import OPTIONS, write_run, write_table


def run_with(path, rows, random_steps=0, **more):
    agent = OPTIONS["agent"] | {"random_steps": random_steps}
    folder = write_run(path, {0: 1.0}, agent=agent, **more)
    write_table(folder / "system.csv", ("agent_steps", "unix_time", "seconds"), rows)
    return folder


def test_the_time_of_a_step_is_that_of_steps_with_updates(tmp_path):
    # Random steps are quick, the first row with updates holds the compilation, then 4 ms a step.
    rows = [(1000, 0, 1.0), (2000, 0, 2.0), (3000, 0, 80.0), (4000, 0, 84.0), (5000, 0, 88.0)]
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows, 2000))) == pytest.approx(0.004)


def test_a_clock_that_starts_anew_is_no_time(tmp_path):
    rows = [(1000, 0, 100.0), (2000, 0, 104.0), (3000, 0, 50.0), (4000, 0, 54.0)]
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows))) == pytest.approx(0.004)


@pytest.mark.parametrize("rows", [[], [(1000, 0, 1.0)], [("x", "y", "z"), (1, 2, 3)]])
def test_too_little_is_known(tmp_path, rows):
    assert seconds_a_step(read_run(run_with(tmp_path / "a", rows))) is None


def test_the_table_has_ours_and_the_papers(tmp_path):
    run_with(tmp_path / "a", [(1000, 0, 0.0), (2000, 0, 7.2)])
    write_run(tmp_path / "b", {0: 1.0}, preset="ogspr-op", manifest={})
    table = runtime_table(make_grid(collect([tmp_path]).runs))
    rows = {row[0].text: row[1:] for row in table.rows}
    parameters, hours, *paper = rows["OG-SPR"]
    assert parameters.text == "5.40"
    assert (hours.text, hours.note) == ("1.00", "H200, with 2 seeds in one process")
    assert [cell.text for cell in paper] == ["5.4", "14.2"]
    assert {cell.text for cell in rows["OG-SPR - OP"]} == {NOTHING}
    assert rows["DreamerV3"][2].text == "5.3"


def test_runs_of_atari_have_no_part_in_it(tmp_path):
    run_with(tmp_path / "a", [(1000, 0, 0.0), (2000, 0, 7.2)], task="atari:Pong")
    assert runtime_table(make_grid(collect([tmp_path]).runs)) is None
