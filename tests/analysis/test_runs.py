import errno
import json
import os

import numpy as np
import pytest

from ogspr.analysis.runs import collect, mixed, read_columns, read_run, unlike_the_paper
from ogspr.errors import UserError
from tests.analysis.folders import MANIFEST, OPTIONS, write_run, write_table


def test_a_run_is_read_as_it_was_written(tmp_path):
    run = read_run(write_run(tmp_path / "run", {0: (1.0, 3.0), 5000: (10.0, 30.0)}, seed=7))
    assert (run.task, run.preset, run.seed, run.suite) == ("dmc:walker-walk", "ogspr", 7, "dmc")
    assert run.evaluations.agent_steps.tolist() == [0, 5000]
    assert run.evaluations.frames.tolist() == [0, 10_000]
    assert run.evaluations.means.tolist() == [2.0, 20.0]
    assert (run.last, run.best, run.agent_steps, run.finished) == (20.0, 20.0, 5000, False)
    assert run.score_at(5000) == 20.0
    assert run.score_at(4999) is None
    assert run.problems == ()


def test_evaluations_come_in_order_of_steps(tmp_path):
    run = read_run(write_run(tmp_path / "run", {10_000: 3.0, 0: 1.0, 5000: 2.0}))
    assert run.evaluations.means.tolist() == [1.0, 2.0, 3.0]


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    path = write_run(tmp_path / "run", {0: 1.0, 5000: 2.0})
    with (path / "eval.csv").open("a") as file:
        file.write("10000,20000,1,99")
    assert read_run(path).evaluations.agent_steps.tolist() == [0, 5000]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("10000,20000,1,nan,500,truncated,", "at agent step 10000 has a score that is not a number"),
        ("10000,20000,1,5.0,500,truncated,", "at agent step 10000 has 1 of 2 episodes"),
        ("ten,20000,1,5.0,500,truncated,", "1 rows of eval.csv are damaged"),
        ("10000", "1 rows of eval.csv are damaged"),
        ("-5,20000,1,5.0,500,truncated,", "1 rows of eval.csv are damaged"),
        ("1e30,20000,1,5.0,500,truncated,", "1 rows of eval.csv are damaged"),
        (f"{10**30},20000,1,5.0,500,truncated,", "1 rows of eval.csv are damaged"),
        ("10000,20000,1,1e308,500,truncated,", "has a score that is not a number"),
    ],
)
def test_an_evaluation_that_cannot_be_used_is_named_and_left_out(tmp_path, row, problem):
    path = write_run(tmp_path / "run", {0: 1.0, 5000: 2.0})
    with (path / "eval.csv").open("a") as file:
        file.write(row + "\n")
    run = read_run(path)
    assert run.evaluations.agent_steps.tolist() == [0, 5000]
    assert len(run.problems) == 1
    assert problem in run.problems[0]


def test_the_last_evaluation_may_have_more_episodes(tmp_path):
    scores = {0: 1.0, 5000: (2.0, 3.0, 4.0, 7.0), 10_000: (5.0, 6.0, 7.0)}
    several = {"episodes": 2, "final_episodes": 4}
    run = read_run(write_run(tmp_path / "run", scores, evaluation=several))
    assert run.evaluations.agent_steps.tolist() == [0, 5000]
    assert run.evaluations.means.tolist() == [1.0, 4.0]
    assert run.problems == ("the evaluation at agent step 10000 has 3 of 4 episodes",)
    (line,) = mixed([run, read_run(write_run(tmp_path / "other", {0: 1.0}))])
    assert line == (
        "runs of dmc were made with different numbers of evaluation episodes: "
        "2 (1 run), 2 and at the end 4 (1 run)"
    )


def test_an_evaluation_with_rows_that_nobody_asked_for_is_named(tmp_path):
    several = {"episodes": 2, "final_episodes": 4}
    run = read_run(write_run(tmp_path / "run", {0: 1.0, 5000: (1.0,) * 5}, evaluation=several))
    assert run.problems == ("the evaluation at agent step 5000 has 5 of 4 episodes",)


def broken(path):
    """Run folders that are not what they seem, each with what is said about it."""
    yield write_run(path / "no-config", {0: 1.0}), lambda run: (run / "config.json").unlink(), "config.json"
    yield (
        write_run(path / "half-config", {0: 1.0}),
        lambda run: (run / "config.json").write_text("{"),
        "damaged",
    )
    yield write_run(path / "list", {0: 1.0}), lambda run: (run / "config.json").write_text("[]"), "damaged"
    yield (
        write_run(path / "foreign", {0: 1.0}),
        lambda run: (run / "config.json").write_text(json.dumps({"model": "resnet"})),
        "not from ogspr: task is None",
    )
    for place, steps in enumerate(("abc", None, [1], 0, -3, 10**30)):
        folder = write_run(path / f"steps-{place}", {0: 1.0}, agent_steps=steps)
        yield folder, lambda run: run, "options.agent_steps is"
    for place, task in enumerate(("walker", "", "dmc:", ":x", "dmc:\ud800", "dmc:a\nb")):
        yield write_run(path / f"task-{place}", {0: 1.0}, task=task), lambda run: run, "no task is called"
    nested = "[" * 100_000 + "]" * 100_000
    yield write_run(path / "deep", {0: 1.0}), lambda run: (run / "config.json").write_text(nested), "damaged"
    yield write_run(path / "no-eval", {0: 1.0}), lambda run: (run / "eval.csv").unlink(), "no evaluation yet"
    yield (
        write_run(path / "empty", {0: 1.0}),
        lambda run: (run / "eval.csv").write_text(""),
        "no evaluation yet: eval.csv is empty",
    )
    yield write_run(path / "header", {}), lambda run: run, "no usable evaluation"
    yield (
        write_run(path / "bytes", {0: 1.0}),
        lambda run: (run / "eval.csv").write_bytes(b"\x00\xff\n\x00"),
        "lacks the columns",
    )


def test_broken_folders_are_named_and_skipped(tmp_path):
    expected = {}
    for run, damage, complaint in broken(tmp_path):
        damage(run)
        expected[run] = complaint
    good = write_run(tmp_path / "good", {0: 1.0})
    collection = collect([tmp_path])
    assert [run.folder for run in collection.runs] == [good]
    reasons = dict(collection.skipped)
    assert reasons.keys() == expected.keys()
    for run, complaint in expected.items():
        assert complaint in reasons[run], run
        assert not reasons[run].startswith(f"{run} ")  # who shows the reason names the folder


def test_runs_are_found_at_any_depth_and_once(tmp_path):
    deep = write_run(tmp_path / "a" / "b" / "seed-1", {0: 1.0})
    write_run(deep / "policies" / "inner", {0: 1.0})  # a run is not looked into
    collection = collect([tmp_path, tmp_path / "a", deep])
    assert [run.folder for run in collection.runs] == [deep]


def test_a_folder_without_runs_is_named_and_a_file_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    ((folder, reason),) = collect([tmp_path / "empty"]).skipped
    assert folder == tmp_path / "empty"
    assert reason == "contains no runs (no config.json with eval.csv)"
    with pytest.raises(UserError, match="is not a folder"):
        collect([tmp_path / "nothing"])


def test_linked_runs_are_named(tmp_path):
    write_run(tmp_path / "elsewhere" / "a", {0: 1.0})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere" / "a")
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    collection = collect([tmp_path / "runs"])
    assert collection.runs == ()
    assert collection.skipped == ((tmp_path / "runs" / "link", "is a link; pass the folder it points to"),)


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path, monkeypatch):
    write_run(tmp_path / "a", {0: 1.0})
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    collection = collect([tmp_path])
    assert len(collection.runs) == 1
    assert collection.skipped == ((tmp_path / "closed", "cannot be read: Permission denied"),)


def test_columns_of_a_table(tmp_path):
    write_table(tmp_path / "t.csv", ("a", "b"), [(1, "x"), (2, 3.5), (4,)])
    names, numbers = read_columns(tmp_path / "t.csv")
    assert names == ["a", "b"]
    np.testing.assert_equal(numbers, [[1.0, np.nan], [2.0, 3.5]])
    assert read_columns(tmp_path / "none.csv")[0] == []


def test_what_should_be_equal_and_is_not_is_named(tmp_path):
    newer = MANIFEST | {"libraries": MANIFEST["libraries"] | {"mujoco": "3.18.0"}}
    paths = [
        write_run(tmp_path / "a", {0: 1.0}),
        write_run(tmp_path / "b", {0: 1.0}, manifest=newer, evaluation={"episodes": 2}),
        write_run(tmp_path / "c", {0: 1.0}, evaluation=OPTIONS["evaluation"]),
    ]
    (line,) = mixed([read_run(path) for path in paths])
    assert line == (
        "runs of dmc were made with different versions of mujoco, which renders other images: "
        "3.17.0 (2 runs), 3.18.0 (1 run)"
    )


def test_other_cameras_are_no_other_protocol_and_other_suites_are_not_compared(tmp_path):
    def seen_by(number, suite):
        protocol = {"suite": suite, "action_repeat": 2, "camera": number}
        return MANIFEST | {"environment": {"protocol": protocol, "renderer": suite}}

    paths = [
        write_run(tmp_path / "a", {0: 1.0}, manifest=seen_by(0, "dmc")),
        write_run(tmp_path / "b", {0: 1.0}, manifest=seen_by(2, "dmc")),
        write_run(tmp_path / "c", {0: 1.0}, task="atari:Pong", manifest=seen_by(None, "atari")),
    ]
    assert mixed([read_run(path) for path in paths]) == []


def test_methods_may_learn_from_signs_of_rewards_and_lost_lives_or_not(tmp_path):
    """Their scores mean the same."""

    def manifest(signs):
        protocol = {"suite": "atari", "sign_rewards": signs, "terminal_on_life_loss": signs}
        return MANIFEST | {"environment": {"protocol": protocol}}

    paths = [
        write_run(tmp_path / str(signs), {0: 1.0}, task="atari:Pong", manifest=manifest(signs))
        for signs in (True, False)
    ]
    assert mixed([read_run(path) for path in paths]) == []


def test_runs_that_show_something_else_than_the_paper_are_named(tmp_path):
    def manifest(**protocol):
        return MANIFEST | {"environment": {"protocol": {"suite": "dmc", "action_repeat": 2} | protocol}}

    small = {"image_size": 40, "action_repeat": 8, "shadows": False}
    atari = {"environment": {"protocol": {"suite": "atari", "preset": "machado2018", "action_repeat": 4}}}
    authors = {"environment": {"protocol": {"suite": "atari", "preset": "ogspr", "action_repeat": 4}}}
    paths = [
        write_run(tmp_path / "paper", {0: 1.0}, manifest=manifest(image_size=84)),
        write_run(tmp_path / "small-1", {0: 1.0}, manifest=manifest(**small)),
        write_run(tmp_path / "small-2", {0: 1.0}, manifest=manifest(**small)),
        write_run(tmp_path / "atari", {0: 1.0}, task="atari:Pong", manifest=atari),
        write_run(tmp_path / "authors", {0: 1.0}, task="atari:Pong", manifest=authors),
        write_run(tmp_path / "own", {0: 1.0}, task="own.world:make", manifest=manifest(image_size=20)),
        write_run(tmp_path / "unknown", {0: 1.0}, manifest={}),
    ]
    assert unlike_the_paper([read_run(path) for path in paths]) == [
        "1 run of atari not under the paper's protocol: preset machado2018 instead of atari100k; "
        "not comparable with its scores",
        "2 runs of dmc not under the paper's protocol: image_size 40 instead of 84, "
        "action_repeat 8 instead of 2, shadows False instead of True; not comparable with its scores",
    ]
