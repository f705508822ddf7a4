import numpy as np
import pytest

from ogspr.analysis.grid import make_grid
from ogspr.analysis.runs import collect
from ogspr.reference import paper_estimates, paper_scores
from ogspr.report.paper_tables import benchmark_tables, improvement_table
from ogspr.report.table import NOTHING
from tests.analysis.folders import MANIFEST, write_run

TASKS = [task for task in paper_estimates("OG-SPR") if task.startswith("dmc:")]
GAMES = [task for task in paper_estimates("OG-SPR") if task.startswith("atari:")]


def write_grid(path, tasks, *, seeds=5, step=500_000, preset="ogspr", offset=0.0):
    """Runs that score what the paper says, a little more or less from seed to seed."""
    scores = paper_scores("OG-SPR")
    for task in tasks:
        for seed in range(seeds):
            score = scores[task] + offset + (seed - (seeds - 1) / 2)
            folder = path / preset / task.replace(":", "-") / str(seed)
            write_run(folder, {0: 1.0, step: score}, task=task, preset=preset, seed=seed)


def tables_of(path, at=None):
    return {table.name: table for table in benchmark_tables(make_grid(collect([path]).runs), at)}


def row(table, name):
    (found,) = (row for row in table.rows if row[0].text == name)
    return found


def column(table, title, group):
    (place,) = (
        place for place, found in enumerate(table.columns) if (found.title, found.group) == (title, group)
    )
    return place


def cell(table, name, title, group="ours"):
    return row(table, name)[column(table, title, group)]


def test_the_papers_scores_give_the_papers_aggregates(tmp_path):
    write_grid(tmp_path, TASKS)
    main = tables_of(tmp_path)["main"]
    assert cell(main, "score, mean, 28 tasks", "OG-SPR").value == pytest.approx(626.0, abs=0.05)
    iqm = "score, IQM over task means, as in the paper, 28 tasks"
    assert cell(main, iqm, "OG-SPR").value == pytest.approx(731.7, abs=0.05)
    assert cell(main, iqm, "OG-SPR", "paper").text == "730 [718, 741]"
    assert cell(main, "score, mean, 28 tasks", "MR.Q", "paper").text == "599 [591, 606]"
    assert not cell(main, iqm, "OG-SPR").incomplete
    assert {len(found) for found in main.rows} == {8}


def test_atari_is_shown_in_units_of_people_and_of_spr(tmp_path):
    write_grid(tmp_path, GAMES, step=100_000)
    atari = tables_of(tmp_path)["atari100k"]
    for unit, mean, iqm in (("human", 0.81, 0.42), ("SPR", 1.24, 1.10)):
        title = f"{unit}-normalised score"
        assert cell(atari, f"{title}, mean, 26 tasks", "OG-SPR").value == pytest.approx(mean, abs=0.005)
        found = cell(atari, f"{title}, IQM over task means, as in the paper, 26 tasks", "OG-SPR").value
        assert found == pytest.approx(iqm, abs=0.005)


def test_a_task_has_our_interval_beside_the_papers(tmp_path):
    write_grid(tmp_path, ["dmc:walker-walk"])
    tasks = tables_of(tmp_path)["main-tasks"]
    ours = cell(tasks, "walker-walk", "OG-SPR")
    assert ours.value == paper_scores("OG-SPR")["dmc:walker-walk"]
    assert ours.low == pytest.approx(ours.value - 1.2, abs=0.25)  # 1.96 * sqrt(2) / sqrt(5)
    assert ours.note == ""
    assert cell(tasks, "walker-walk", "DrQ-v2", "paper").value is not None
    assert cell(tasks, "cheetah-run", "OG-SPR").text == NOTHING
    assert len(tasks.rows) == 28


def test_what_is_missing_is_not_averaged_over(tmp_path):
    write_grid(tmp_path, TASKS[:4], seeds=2)
    main = tables_of(tmp_path)["main"]
    everything = cell(main, "score, mean, 28 tasks", "OG-SPR")
    assert (everything.text, everything.note) == (NOTHING, "finished on 4 of 28 tasks")
    part = cell(main, "score, mean, 4 tasks", "OG-SPR")
    assert part.note == "2 of 5 seeds a task"
    assert part.incomplete
    papers = cell(main, "score, mean, 4 tasks", "MR.Q", "paper")
    assert papers.value == np.mean([paper_scores("MR.Q")[task] for task in TASKS[:4]])
    rliable = "score, IQM over runs and tasks, as in rliable, 4 tasks"
    assert cell(main, rliable, "MR.Q", "paper").text == NOTHING  # its runs are not published


def test_runs_that_are_not_so_far_have_a_note_and_no_part_in_aggregates(tmp_path):
    write_grid(tmp_path, TASKS, step=50_000, seeds=2)
    tables = tables_of(tmp_path)
    assert cell(tables["main"], "score, mean, 28 tasks", "OG-SPR").note == "finished on 0 of 28 tasks"
    note = "2 of 5 seeds, at 50 000 of 500 000 agent steps"
    assert cell(tables["main-tasks"], "walker-walk", "OG-SPR").note == note


def test_scores_can_be_read_at_another_step(tmp_path):
    write_grid(tmp_path, TASKS, step=50_000)
    tables = tables_of(tmp_path, at=50_000)
    assert cell(tables["main"], "score, mean, 28 tasks", "OG-SPR").value == pytest.approx(626.0, abs=0.05)
    assert "Ours at 50 000 agent steps, the paper's at 500 000." in tables["main"].note


def test_ablations_have_their_own_tables(tmp_path):
    write_grid(tmp_path, TASKS[:1])
    assert "ablations" not in tables_of(tmp_path)
    write_grid(tmp_path, TASKS[:1], preset="ogspr-sp")
    tables = tables_of(tmp_path)
    assert [c.title for c in tables["ablations"].columns if c.group == "ours"] == ["OG-SPR", "OG-SPR - SP"]
    assert [c.title for c in tables["main"].columns if c.group == "ours"] == ["OG-SPR"]


def test_a_task_the_paper_does_not_have_is_shown_all_the_same(tmp_path):
    write_run(tmp_path / "run", {500_000: 5.0}, task="dmc:fish-upright")
    assert cell(tables_of(tmp_path)["main-tasks"], "fish-upright", "OG-SPR").value == 5.0


def test_the_better_method_is_likely_to_be_better(tmp_path):
    write_grid(tmp_path, TASKS[:3])
    write_grid(tmp_path, TASKS[:3], preset="ogspr-op", offset=-10.0)
    table = improvement_table(make_grid(collect([tmp_path]).runs))
    values = {found[0].text: found[1].value for found in table.rows}
    assert values == {"OG-SPR beats OG-SPR - OP, dmc": 1.0}


def test_runs_before_the_end_and_other_suites_have_no_part_in_an_improvement(tmp_path):
    for preset, offset in (("ogspr", 0.0), ("ogspr-op", 10.0)):
        write_grid(tmp_path, TASKS[:1], preset=preset, offset=offset)
        write_grid(tmp_path, TASKS[1:2], preset=preset, step=5000, offset=-offset)
        write_grid(tmp_path, GAMES[:1], preset=preset, step=100_000, offset=-offset)
    table = improvement_table(make_grid(collect([tmp_path]).runs))
    values = {found[0].text: (found[1].value, found[1].note) for found in table.rows}
    assert values == {
        "OG-SPR beats OG-SPR - OP, dmc": (0.0, "1 task"),
        "OG-SPR beats OG-SPR - OP, atari": (1.0, "1 task"),
    }


def test_one_seed_has_no_interval(tmp_path):
    write_grid(tmp_path, TASKS, seeds=1)
    write_grid(tmp_path, TASKS, seeds=1, preset="anonmethod")
    tables = tables_of(tmp_path)
    cells = [
        cell(tables["main"], "score, mean, 28 tasks", "OG-SPR"),
        cell(tables["main-tasks"], "walker-walk", "OG-SPR"),
        improvement_table(make_grid(collect([tmp_path]).runs)).rows[0][1],
    ]
    assert [(found.low, found.high, "[" in found.text) for found in cells] == [(None, None, False)] * 3


def test_a_method_that_has_just_begun_takes_nothing_from_the_others(tmp_path):
    write_grid(tmp_path, TASKS[:3])
    write_grid(tmp_path, TASKS[:1], preset="mrq", seeds=1, step=5000)
    main = tables_of(tmp_path)["main"]
    assert cell(main, "score, mean, 3 tasks", "OG-SPR").value is not None
    assert cell(main, "score, mean, 3 tasks", "MR.Q").note == "finished on 0 of 3 tasks"


def test_the_median_of_the_paper_is_computed_from_its_tasks(tmp_path):
    write_grid(tmp_path, TASKS)
    main = tables_of(tmp_path)["main"]
    row_name = "score, median over task means, 28 tasks"
    expected = np.median([paper_scores("MR.Q")[task] for task in TASKS])
    assert cell(main, row_name, "MR.Q", "paper").value == expected


def test_tables_say_what_was_mixed(tmp_path):
    write_run(tmp_path / "a", {500_000: 1.0}, seed=0)
    write_run(tmp_path / "b", {500_000: 1.0}, seed=1, manifest=MANIFEST | {"ogspr": "9.9"})
    note = tables_of(tmp_path)["main-tasks"].note
    assert "Beware: runs of dmc were made with different versions of ogspr" in note


def test_methods_on_different_tasks_are_not_compared(tmp_path):
    write_grid(tmp_path, TASKS[:1])
    write_grid(tmp_path, TASKS[1:2], preset="ogspr-op")
    assert improvement_table(make_grid(collect([tmp_path]).runs)) is None
