"""The random policy's scores: the same as those of the real environments, and kept task by task."""

import csv
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import random as bench
from benchmarks.commands import Random
from ogspr.commands.declared import Rollout
from ogspr.commands.rollout import rollout
from ogspr.envs import EnvOptions, dmc, make
from ogspr.errors import UserError
from ogspr.reference import read_table
from ogspr.training.episodes import EpisodeDriver
from ogspr.types import Episode
from tests.benchmarks.reports import measured

ROOT = Path(__file__).parent.parent.parent
MEASURED = ROOT / "results" / "bench-random" / "cpu.csv"
COUNTER = "tests.helpers.worlds:counter"  # every episode scores 1 + 2 + ... + 10
DRIFT = "tests.helpers.worlds:drift"


def run(tasks, out=None, episodes=2, processes=1, **settings):
    return measured(Random(tasks=tuple(tasks), episodes=episodes, processes=processes, **settings), out)


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


# Starts that are drawn anew, an obstacle course that is uploaded when it changes, a body of many actions.
@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    "task", ["cheetah-run", "ball_in_cup-catch", "finger-turn_hard", "humanoid_CMU-run", "quadruped-escape"]
)
def test_a_task_that_is_not_drawn_scores_the_same(task, monkeypatch):
    def steps(env):
        rng = np.random.default_rng(5)
        found = []
        for _ in range(2):
            found.append(env.reset())
            found += [env.step(env.spec.actions.sample(rng)) for _ in range(10)]
        env.close()
        return found

    drawn = steps(make(f"dmc:{task}", seed=3))
    monkeypatch.setattr(dmc.DmcSource, "draw", lambda _: pytest.fail("a picture was drawn"))
    undrawn = steps(bench.unseen(f"dmc:{task}", seed=3))
    for one, other in zip(drawn, undrawn, strict=True):
        assert (one.score, one.frames, one.ending) == (other.score, other.frames, other.ending)
        np.testing.assert_array_equal(one.proprioception, other.proprioception)


@pytest.mark.usefixtures("opengl")
def test_whole_episodes_are_those_of_rollout():
    task, episodes, seed = "dmc:cartpole-swingup", 2, 4
    console = Console(quiet=True)
    options = EnvOptions(image_size=8, shadows=False)  # quickly drawn; scores do not depend on pictures
    command = Rollout(task=task, episodes=episodes, seed=seed, worker=False, env=options)
    played = rollout(command, console)
    first, second = (episode.score for episode in played)
    found = bench.random_score(task, episodes, seed)
    assert found.mean == pytest.approx((first + second) / 2, rel=1e-12)
    assert found.standard_deviation == pytest.approx(abs(first - second) / 2**0.5, rel=1e-12)
    assert found.standard_error == pytest.approx(abs(first - second) / 2, rel=1e-12)


def test_mean_deviation_and_error_by_hand(monkeypatch):
    played = [Episode(score, 10, 10, "truncated", "") for score in (2.0, 4.0, 4.0, 10.0)]
    monkeypatch.setattr(EpisodeDriver, "play", lambda *_: played)
    found = bench.random_score(COUNTER, episodes=4, seed=0)
    assert (found.mean, found.episodes) == (5.0, 4)
    assert found.standard_deviation == pytest.approx(12**0.5)  # squares 9 + 1 + 1 + 25, over 3
    assert found.standard_error == pytest.approx(3**0.5)


def test_atari_scores_are_not_clipped():
    """A cube is worth 25 points in Q*bert and there are no smaller ones: signs would add up to a few."""
    assert bench.random_score("atari:Qbert", episodes=2, seed=0).mean >= 25


def test_actions_are_held_as_long_as_asked():
    """Of ten steps that are worth 1 to 10, two at a time make five: all rewards still count."""
    once, twice = (bench.random_score(COUNTER, 2, 0, action_repeat=repeat) for repeat in (None, 2))
    assert (once.mean, twice.mean) == (55.0, 55.0)
    assert (once.action_repeat, twice.action_repeat) == (1, 2)


def test_every_task_gets_a_row(tmp_path):
    out = tmp_path / "deep" / "scores.csv"
    scores, text = run([DRIFT, COUNTER], out, episodes=3, seed=7, processes=2)
    assert [score.task for score in scores] == [DRIFT, COUNTER]
    assert scores[1].mean == 55.0
    assert scores[1].standard_error == 0.0
    rows = rows_of(out)
    assert [row["task"] for row in rows] == [COUNTER, DRIFT]  # sorted, whichever was ready first
    assert rows[0] == {
        "task": COUNTER,
        "mean": "55",
        "standard_error": "0",
        "standard_deviation": "0",
        "episodes": "3",
        "seed": "7",
        "action_repeat": "1",
        "versions": rows[0]["versions"],
    }
    assert "gymnasium=" in rows[0]["versions"]
    assert float(rows[1]["mean"]) == pytest.approx(bench.random_score(DRIFT, 3, 7).mean, rel=1e-5)
    assert DRIFT in text
    assert "55.00" in text


def test_a_second_call_measures_only_what_is_missing(tmp_path):
    out = tmp_path / "scores.csv"
    run([COUNTER], out)
    out.write_text(out.read_text().replace(",55,", ",56,"))  # would be 55 again if it were measured again
    scores, _ = run([COUNTER, DRIFT], out)
    assert scores[0].mean == 56.0
    assert [(row["task"], row["mean"] == "56") for row in rows_of(out)] == [(COUNTER, True), (DRIFT, False)]


def test_tasks_of_earlier_calls_stay_in_the_file(tmp_path):
    out = tmp_path / "scores.csv"
    run([COUNTER], out)
    scores, _ = run([DRIFT], out)
    assert [score.task for score in scores] == [DRIFT]
    assert [row["task"] for row in rows_of(out)] == [COUNTER, DRIFT]


@pytest.mark.parametrize("settings", [{"episodes": 3}, {"seed": 1}, {"tasks": [COUNTER], "action_repeat": 2}])
def test_a_file_of_other_settings_is_refused(tmp_path, settings):
    out = tmp_path / "scores.csv"
    run([COUNTER], out)
    before = out.read_text()
    with pytest.raises(UserError, match=rf"holds {COUNTER} with 2 episodes, seed 0, .*Choose another file"):
        run(**{"tasks": [DRIFT], "out": out} | settings)
    assert out.read_text() == before


def test_a_file_of_other_libraries_is_refused(tmp_path):
    out = tmp_path / "scores.csv"
    run([COUNTER], out)
    out.write_text(out.read_text().replace("gymnasium=", "gymnasium=0."))
    with pytest.raises(UserError, match=r"gymnasium=0\..*asked for .*gymnasium="):
        run([COUNTER], out)


def test_other_files_are_not_overwritten(tmp_path):
    out = tmp_path / "other.csv"
    out.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="was not written by this command"):
        run([COUNTER], out)
    assert out.read_text() == "a,b\n1,2\n"
    with pytest.raises(UserError, match=r"must end in \.csv"):
        run([COUNTER], tmp_path / "scores.txt")


def test_a_killed_process_is_told_and_what_was_measured_stays(tmp_path):
    out = tmp_path / "scores.csv"
    with pytest.raises(UserError, match="was killed"):
        run([COUNTER, "tests.helpers.worlds:killed"], out)
    assert [row["task"] for row in rows_of(out)] == [COUNTER]


def test_misspelt_tasks_are_found_before_anything_is_measured(tmp_path):
    out = tmp_path / "scores.csv"
    with pytest.raises(UserError, match="did you mean atari:Pong"):
        run([COUNTER, "atari:Pnog"], out)
    assert not out.exists()


def test_one_episode_has_no_spread():
    with pytest.raises(UserError, match="at least 2"):
        run([COUNTER], episodes=1)


def test_names_are_printed_as_they_are(monkeypatch):
    score = bench.RandomScore("atari:Alien", 200.0, 5.0, 50.0, 100, 0, 4, "ale_py=1")
    monkeypatch.setattr(bench, "_measured", lambda *_: iter([score]))
    _, text = run(["atari:Alien"])
    assert "atari:Alien 200.00 +- 5.00\n" in text


def test_all_tasks_of_the_paper_are_the_default():
    suites = [task.partition(":")[0] for task in bench.paper_tasks()]
    assert (suites.count("dmc"), suites.count("atari"), len(suites)) == (28, 26, 54)


def test_the_scores_that_ship_are_made_of_the_measured_ones(tmp_path):
    bench.ship(MEASURED, tmp_path / "shipped.csv")
    assert (tmp_path / "shipped.csv").read_bytes() == bench.SHIPPED.read_bytes()


def test_what_ships_needs_a_file_that_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "SHIPPED", tmp_path / "shipped.csv")
    with pytest.raises(UserError, match="--ship needs --out"):
        run([COUNTER], ship=True)
    run([COUNTER], tmp_path / "scores.csv", ship=True)
    assert (tmp_path / "shipped.csv").read_text() == (
        f"task,mean,standard_error,episodes\n{COUNTER},55,0,2\n"
    )


def test_the_scores_that_ship_are_the_measured_ones():
    shipped, measured = read_table("random_scores.csv"), rows_of(MEASURED)
    columns = ("task", "mean", "standard_error", "episodes")
    assert shipped == [{name: row[name] for name in columns} for row in measured]
    assert {row["task"] for row in shipped} == set(bench.paper_tasks())
    assert all(int(row["episodes"]) >= 100 for row in shipped)
