import numpy as np
import pytest

from ogspr.analysis.curves import curve
from ogspr.analysis.grid import make_grid, score_matrix
from ogspr.analysis.runs import collect
from tests.analysis.folders import OPTIONS, write_run


def grid_of(path):
    return make_grid(collect([path]).runs)


def test_methods_have_the_papers_names_and_order(tmp_path):
    for place, preset in enumerate(("small", "no-adapter", "ogspr")):
        write_run(tmp_path / str(place), {0: 1.0}, preset=preset)
    assert list(grid_of(tmp_path).methods) == ["OG-SPR", "No Adapter", "small"]


def test_runs_of_a_preset_with_other_settings_are_another_method(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"usual-{seed}", {0: 1.0}, seed=seed)
    other = OPTIONS["agent"] | {"batch_size": 128}
    write_run(tmp_path / "other", {0: 1.0}, seed=0, agent=other)
    write_run(tmp_path / "precise", {0: 1.0}, seed=0, compute={"precision": "fp32"})
    grid = grid_of(tmp_path)
    assert list(grid.methods) == ["OG-SPR", "OG-SPR, batch size 128", "OG-SPR, precision fp32"]
    assert [run.seed for run in grid.methods["OG-SPR"]["dmc:walker-walk"]] == [0, 1]


def test_length_and_what_is_kept_make_no_other_method(tmp_path):
    write_run(tmp_path / "a", {0: 1.0}, seed=0, keep={"checkpoints": 1})
    write_run(tmp_path / "b", {0: 1.0}, seed=1, agent_steps=7)
    assert list(grid_of(tmp_path).methods) == ["OG-SPR"]


def test_a_seed_counts_once(tmp_path):
    write_run(tmp_path / "short", {0: 1.0}, seed=3)
    write_run(tmp_path / "long", {0: 1.0, 5000: 2.0}, seed=3)
    grid = grid_of(tmp_path)
    (run,) = grid.methods["OG-SPR"]["dmc:walker-walk"]
    assert run.folder.name == "long"
    assert any("seed 3 is there more than once" in warning for warning in grid.warnings)


def test_a_square_is_read_where_the_paper_reads_it(tmp_path):
    for seed, final in enumerate((100.0, 300.0)):
        write_run(tmp_path / str(seed), {0: 1.0, 500_000: final, 505_000: 0.0}, seed=seed)
    found = grid_of(tmp_path).square("OG-SPR", "dmc:walker-walk")
    assert found.scores.tolist() == [100.0, 300.0]
    assert found.note == "2 of 5 seeds"
    assert found.at_the_end
    assert not found.complete


def test_five_seeds_at_the_end_are_complete(tmp_path):
    for seed in range(5):
        write_run(tmp_path / str(seed), {500_000: 1.0}, seed=seed)
    found = grid_of(tmp_path).square("OG-SPR", "dmc:walker-walk")
    assert found.complete
    assert found.note == ""


def test_runs_that_are_not_so_far_are_read_at_the_last_step_they_share(tmp_path):
    write_run(tmp_path / "a", {0: 1.0, 5000: 2.0, 10_000: 3.0}, seed=0)
    write_run(tmp_path / "b", {0: 5.0, 5000: 6.0}, seed=1)
    found = grid_of(tmp_path).square("OG-SPR", "dmc:walker-walk")
    assert (found.agent_steps, found.scores.tolist()) == (5000, [2.0, 6.0])
    assert found.note == "2 of 5 seeds, at 5 000 of 500 000 agent steps"


def test_those_that_have_arrived_count_and_the_others_are_mentioned(tmp_path):
    write_run(tmp_path / "a", {0: 1.0, 500_000: 9.0}, seed=0)
    write_run(tmp_path / "b", {0: 5.0}, seed=1)
    found = grid_of(tmp_path).square("OG-SPR", "dmc:walker-walk")
    assert found.scores.tolist() == [9.0]
    assert found.note == "1 of 5 seeds, 1 more not so far yet"


def test_runs_that_share_no_step_are_not_averaged(tmp_path):
    write_run(tmp_path / "a", {1000: 1.0}, seed=0)
    write_run(tmp_path / "b", {1500: 5.0}, seed=1)
    assert grid_of(tmp_path).square("OG-SPR", "dmc:walker-walk") is None


@pytest.mark.parametrize(("task", "steps"), [("atari:Pong", 100_000), ("my:world", 60_000)])
def test_other_suites_end_elsewhere(tmp_path, task, steps):
    write_run(tmp_path / "a", {steps: 4.0}, task=task, agent_steps=60_000)
    assert grid_of(tmp_path).square("OG-SPR", task).at_the_end


def test_tasks_with_fewer_runs_are_filled_up():
    matrix = score_matrix([np.array([1.0, 2.0]), np.array([3.0])])
    np.testing.assert_equal(matrix, [[1.0, 3.0], [2.0, np.nan]])


def test_a_curve_has_every_step_and_no_band_around_a_single_run(tmp_path):
    write_run(tmp_path / "a", {0: 0.0, 5000: 10.0, 10_000: 20.0}, seed=0)
    write_run(tmp_path / "b", {0: 2.0, 5000: 30.0}, seed=1)
    line = curve(grid_of(tmp_path).methods["OG-SPR"]["dmc:walker-walk"])
    assert line.agent_steps.tolist() == [0, 5000, 10_000]
    assert line.frames.tolist() == [0, 10_000, 20_000]
    np.testing.assert_equal(line.scores, [[0.0, 10.0, 20.0], [2.0, 30.0, np.nan]])
    assert line.mean.tolist() == [1.0, 20.0, 20.0]
    # Two runs: a resample is one of them twice, or both; the ends are the runs themselves.
    np.testing.assert_equal(line.low, [0.0, 10.0, np.nan])
    np.testing.assert_equal(line.high, [2.0, 30.0, np.nan])
