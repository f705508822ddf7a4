"""The numbers that figures show."""

import numpy as np
import pytest

from ogspr.analysis.grid import make_grid
from ogspr.analysis.runs import collect
from ogspr.reference import paper_scores
from ogspr.report.figures import aggregate_curves, improvement, improvement_bars, profiles, task_curves
from tests.analysis.folders import write_run
from tests.report.test_paper_tables import GAMES, TASKS, write_grid


def grid_of(path):
    return make_grid(collect([path]).runs)


def lines(axes):
    return {
        line.get_label(): np.array(line.get_data()) for line in axes.get_lines() if line.get_label()[0] != "_"
    }


def test_a_task_shows_our_mean_with_its_seeds(tmp_path):
    for seed, score in enumerate((100.0, 300.0)):
        write_run(tmp_path / str(seed), {0: 0.0, 5000: score}, seed=seed)
    figure = task_curves(grid_of(tmp_path), ["dmc:walker-walk"])
    drawn = lines(figure.axes[0])
    np.testing.assert_array_equal(drawn["OG-SPR (2 seeds)"], [[0, 5000], [0, 200]])
    paper = drawn["OG-SPR in the paper, at the end"]
    assert set(paper[1]) == {paper_scores()["dmc:walker-walk"]}
    assert drawn["DrQ-v2 (published)"][0].max() <= 5000


def test_runs_that_went_on_are_shown_each_by_itself(tmp_path):
    """A mean of fewer runs would be another one."""
    ends = ({}, {10_000: 400.0}, {10_000: 500.0, 15_000: 600.0})
    for seed, further in enumerate(ends):
        write_run(tmp_path / str(seed), {0: 0.0, 5000: 100.0 * seed} | further, seed=seed)
    (axes,) = task_curves(grid_of(tmp_path), ["dmc:walker-walk"]).axes
    np.testing.assert_array_equal(lines(axes)["OG-SPR (3 seeds)"], [[0, 5000], [0, 100]])
    shorter, longer = (line for line in axes.get_lines() if line.get_label()[0] == "_")
    np.testing.assert_array_equal(shorter.get_data(), [[5000, 10_000], [100, 400]])
    np.testing.assert_array_equal(longer.get_data(), [[5000, 10_000, 15_000], [200, 500, 600]])
    (mean,) = (line for line in axes.get_lines() if line.get_label() == "OG-SPR (3 seeds)")
    assert longer.get_linewidth() < mean.get_linewidth()
    assert longer.get_color() == mean.get_color()


def test_aggregates_are_means_over_shared_tasks_in_each_unit(tmp_path):
    write_grid(tmp_path, TASKS[:3], seeds=2)
    write_grid(tmp_path, TASKS[:2], seeds=2, preset="ogspr-sp")
    raw, normalised = aggregate_curves(grid_of(tmp_path), TASKS[:3]).axes
    expected = np.mean([paper_scores()[task] for task in TASKS[:2]])
    assert lines(raw)["OG-SPR (2 seeds)"][1][-1] == pytest.approx(expected)
    assert raw.get_ylabel() == "score, mean of 2 tasks"
    assert normalised.get_ylabel() == "DrQ-v2-normalised score, mean of 2 tasks"


def test_atari_is_never_averaged_as_points(tmp_path):
    write_grid(tmp_path, GAMES[:2], seeds=2, step=100_000)
    (axes,) = aggregate_curves(grid_of(tmp_path), GAMES[:2]).axes
    assert axes.get_ylabel() == "human-normalised score, mean of 2 tasks"


def test_improvement_is_over_the_stronger_rival_in_per_cent(tmp_path):
    task = "dmc:walker-walk"
    best = max(paper_scores("MR.Q")[task], paper_scores("AnonMethod")[task])
    for seed, factor in enumerate((1.1, 1.3)):
        write_run(tmp_path / str(seed), {500_000: factor * best}, seed=seed)
    found = improvement(grid_of(tmp_path), "OG-SPR", task, None)
    assert (found.low, found.value, found.high) == pytest.approx((10.0, 20.0, 30.0))
    assert improvement(grid_of(tmp_path), "OG-SPR", task, 5000) is None
    assert improvement_bars(grid_of(tmp_path), [task], 5000) is None


def test_profiles_are_of_tasks_that_all_methods_have_finished(tmp_path):
    write_run(tmp_path / "a", {500_000: 400.0})
    write_run(tmp_path / "b", {500_000: 800.0}, task="dmc:walker-run")
    write_run(tmp_path / "c", {500_000: 600.0}, preset="anonmethod")
    figure = profiles(grid_of(tmp_path), ["dmc:walker-run", "dmc:walker-walk"])
    (axes,) = figure.axes
    thresholds, shares = lines(axes)["OG-SPR (1 seed)"]
    assert shares[thresholds < 0.39].min() == 1.0
    assert shares[thresholds > 0.41].max() == 0.0
    assert axes.get_xlabel() == "score / 1000, 1 task"


def test_tasks_without_a_unit_have_no_profile_and_no_aggregate(tmp_path):
    tasks = ["gym:CartPole-v1", "gym:Acrobot-v1"]
    for task in tasks:
        write_run(tmp_path / task[4:], {500_000: 400.0}, task=task)
    assert profiles(grid_of(tmp_path), tasks) is None
    assert aggregate_curves(grid_of(tmp_path), tasks) is None


def test_a_method_has_one_colour_everywhere_and_many_can_be_told_apart(tmp_path):
    for place in range(9):
        write_run(tmp_path / str(place), {0: 1.0, 500_000: 5.0}, preset=f"own-{place}")
    grid = grid_of(tmp_path)
    looks = []
    for axes in (task_curves(grid, grid.tasks).axes[0], profiles(grid, grid.tasks).axes[0]):
        ours = [line for line in axes.get_lines() if line.get_label().startswith("own")]
        looks.append({line.get_label(): (line.get_color(), line.get_linestyle()) for line in ours})
    assert looks[0] == looks[1]
    assert len(set(looks[0].values())) == 9


def test_one_evaluation_is_a_dot(tmp_path):
    write_run(tmp_path / "a", {0: 1.0})
    axes = task_curves(grid_of(tmp_path), ["dmc:walker-walk"]).axes[0]
    (line,) = (line for line in axes.get_lines() if line.get_label().startswith("OG-SPR (1"))
    assert line.get_marker() == "o"


def test_long_names_of_methods_stay_inside_the_figure(tmp_path):
    name = "MR.Q, batch size 8, random steps 40, env.image size 40, evaluation.episodes 2, 1 more"
    for place in range(3):
        for task in TASKS[:4]:
            write_run(tmp_path / task / str(place), {0: 1.0, 5000: 5.0}, task=task, preset=f"{name} {place}")
    grid = grid_of(tmp_path)
    for tasks in (grid.tasks[:1], grid.tasks):
        figure = task_curves(grid, tasks)
        figure.canvas.draw()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
