import numpy as np
import pytest

from ogspr.analysis.grid import curve, make_grid, score_matrix
from ogspr.analysis.runs import collect
from tests.analysis.folders import MANIFEST, OPTIONS, write_run


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


def test_methods_with_many_changes_are_not_mixed_up(tmp_path):
    """Their names are shortened, but two different ones never become the same."""
    usual = OPTIONS["agent"] | dict.fromkeys("abcz", 0)
    for seed in range(3):
        write_run(tmp_path / f"usual-{seed}", {0: 1.0}, seed=seed, agent=usual)
    for z in (1, 2):
        agent = usual | dict.fromkeys("abc", 1) | {"z": z}
        write_run(tmp_path / f"other-{z}", {0: 1.0}, seed=z, agent=agent)
    write_run(tmp_path / "far", {0: 1.0}, seed=9, agent=usual | dict.fromkeys("abcz", 5))
    assert list(grid_of(tmp_path).methods) == [
        "OG-SPR",
        "OG-SPR, a 1, b 1, c 1, z 1",
        "OG-SPR, a 1, b 1, c 1, z 2",
        "OG-SPR, a 5, b 5, c 5, 1 more",
    ]


def told(**changed):
    return MANIFEST | {"settings": MANIFEST["settings"] | {"changed": changed}}


def test_runs_say_what_was_changed_so_presets_may_depend_on_the_task(tmp_path):
    schedules = {"dmc:walker-walk": 100_000, "dmc:humanoid-walk": 2_000_000}
    for task, steps in schedules.items():
        agent = {"noise_steps": steps}
        write_run(tmp_path / task[4:], {0: 1.0}, task=task, preset="drqv2", agent=agent, manifest=told())
    changed = told(**{"agent.noise_steps": 7})
    write_run(tmp_path / "own", {0: 1.0}, preset="drqv2", agent={"noise_steps": 7}, manifest=changed)
    grid = grid_of(tmp_path)
    assert {method: len(tasks) for method, tasks in grid.methods.items()} == {
        "DrQ-v2": 2,
        "DrQ-v2, noise steps 7": 1,
    }


def test_a_run_that_does_not_count_keeps_its_name(tmp_path):
    changed = told(**{"agent.batch_size": 128})
    for name, scores in (("short", {0: 1.0}), ("long", {0: 1.0, 5000: 2.0})):
        write_run(tmp_path / name, scores, seed=3, manifest=changed)
    assert set(grid_of(tmp_path).names.values()) == {"OG-SPR, batch size 128"}


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
    (warning,) = grid.warnings
    assert f"seed 3 appears more than once; {tmp_path / 'long'} counts" in warning
    assert f"{tmp_path / 'short'} does not" in warning


def test_a_step_without_an_evaluation_is_told_from_one_that_is_not_reached(tmp_path):
    write_run(tmp_path / "run", {0: 1.0, 5000: 2.0})
    grid = grid_of(tmp_path)
    notes = [grid.entry("OG-SPR", "dmc:walker-walk", at).note for at in (1000, 6000)]
    assert "read at 0 agent steps, no evaluation at 1 000" in notes[0]
    assert "at 5 000 of 6 000 agent steps" in notes[1]


def test_a_square_is_read_where_the_paper_reads_it(tmp_path):
    for seed, final in enumerate((100.0, 300.0)):
        write_run(tmp_path / str(seed), {0: 1.0, 500_000: final, 505_000: 0.0}, seed=seed)
    found = grid_of(tmp_path).entry("OG-SPR", "dmc:walker-walk")
    assert found.scores.tolist() == [100.0, 300.0]
    assert found.note == "2 of 5 seeds"
    assert found.at_the_end
    assert not found.complete


def test_five_seeds_at_the_end_are_complete(tmp_path):
    for seed in range(5):
        write_run(tmp_path / str(seed), {500_000: 1.0}, seed=seed)
    found = grid_of(tmp_path).entry("OG-SPR", "dmc:walker-walk")
    assert found.complete
    assert found.note == ""


def test_runs_that_are_not_so_far_are_read_at_the_last_step_they_share(tmp_path):
    write_run(tmp_path / "a", {0: 1.0, 5000: 2.0, 10_000: 3.0}, seed=0)
    write_run(tmp_path / "b", {0: 5.0, 5000: 6.0}, seed=1)
    found = grid_of(tmp_path).entry("OG-SPR", "dmc:walker-walk")
    assert (found.agent_steps, found.scores.tolist()) == (5000, [2.0, 6.0])
    assert found.note == "2 of 5 seeds, at 5 000 of 500 000 agent steps"


def test_those_that_have_arrived_count_and_the_others_are_mentioned(tmp_path):
    write_run(tmp_path / "a", {0: 1.0, 500_000: 9.0}, seed=0)
    write_run(tmp_path / "b", {0: 5.0}, seed=1)
    found = grid_of(tmp_path).entry("OG-SPR", "dmc:walker-walk")
    assert found.scores.tolist() == [9.0]
    assert found.note == "1 of 5 seeds, 1 more without an evaluation there"


def test_runs_that_share_no_step_are_not_averaged(tmp_path):
    write_run(tmp_path / "a", {1000: 1.0}, seed=0)
    write_run(tmp_path / "b", {1500: 5.0}, seed=1)
    assert grid_of(tmp_path).entry("OG-SPR", "dmc:walker-walk") is None


@pytest.mark.parametrize(("task", "steps"), [("atari:Pong", 100_000), ("my:world", 60_000)])
def test_other_suites_end_elsewhere(tmp_path, task, steps):
    write_run(tmp_path / "a", {steps: 4.0}, task=task, agent_steps=60_000)
    assert grid_of(tmp_path).entry("OG-SPR", task).at_the_end


def test_tasks_with_fewer_runs_are_filled_up():
    matrix = score_matrix([np.array([1.0, 2.0]), np.array([3.0])])
    np.testing.assert_equal(matrix, [[1.0, 3.0], [2.0, np.nan]])


def test_a_curve_ends_where_a_run_is_missing(tmp_path):
    """Else it would go on as the mean of others than before."""
    write_run(tmp_path / "a", {0: 0.0, 5000: 10.0, 10_000: 20.0}, seed=0)
    write_run(tmp_path / "b", {0: 2.0, 5000: 30.0}, seed=1)
    line = curve(grid_of(tmp_path).methods["OG-SPR"]["dmc:walker-walk"])
    assert line.agent_steps.tolist() == [0, 5000, 10_000]
    assert line.frames.tolist() == [0, 10_000, 20_000]
    np.testing.assert_equal(line.scores, [[0.0, 10.0, 20.0], [2.0, 30.0, np.nan]])
    np.testing.assert_equal(line.mean, [1.0, 20.0, np.nan])
    # Two runs: a resample is one of them twice, or both; the ends are the runs themselves.
    np.testing.assert_equal(line.low, [0.0, 10.0, np.nan])
    np.testing.assert_equal(line.high, [2.0, 30.0, np.nan])


def test_there_is_no_band_around_a_single_run(tmp_path):
    write_run(tmp_path / "a", {0: 0.0, 5000: 10.0})
    line = curve(grid_of(tmp_path).methods["OG-SPR"]["dmc:walker-walk"])
    assert line.mean.tolist() == [0.0, 10.0]
    assert np.isnan([line.low, line.high]).all()
