"""The benchmark measures what it says; how fast anything is, is no matter for tests."""

import csv

import pytest

from benchmarks import env as bench
from benchmarks.commands import Env
from benchmarks.harness import in_turns
from ogspr.errors import UserError
from tests.benchmarks.reports import measured


def run(tasks, out=None):
    return measured(Env(tasks=tuple(tasks), steps=4, rounds=1), out)


def test_own_worlds_are_measured_three_ways(tmp_path):
    results, text = run(["examples.chase:make"], tmp_path / "deep" / "numbers.csv")
    assert [result.contender for result in results] == [bench.OURS, bench.WORKER, bench.ASYNC_VECTOR]
    assert results[0].ratio == 1.0
    for result in results:
        assert result.per_second * result.milliseconds == pytest.approx(1000)
        assert result.contender in text
    with (tmp_path / "deep" / "numbers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["contender"] for row in rows] == [result.contender for result in results]
    assert "cores" in rows[0]["hardware"]


@pytest.mark.usefixtures("opengl")
def test_dmc_is_measured_beside_dm_control_and_atari_beside_gymnasium():
    results, _ = run(["dmc:cartpole-balance", "atari:Pong"])
    assert [(result.task, result.contender) for result in results] == [
        ("dmc:cartpole-balance", bench.DM_CONTROL),
        ("dmc:cartpole-balance", bench.OURS),
        ("dmc:cartpole-balance", bench.WORKER),
        ("dmc:cartpole-balance", bench.WORKERS),
        ("dmc:cartpole-balance", bench.ASYNC_VECTOR),
        ("dmc:cartpole-balance", bench.DM_CONTROL_DRAW),
        ("dmc:cartpole-balance", bench.DRAW),
        ("dmc:cartpole-balance", bench.DRAW_WITHOUT_SHADOWS),
        ("atari:Pong", bench.GYM_ATARI),
        ("atari:Pong", bench.OURS),
        ("atari:Pong", bench.WORKER),
        ("atari:Pong", bench.ASYNC_VECTOR),
    ]


def test_the_median_round_counts_and_the_first_is_warm_up(monkeypatch):
    seconds = iter([100, 100, 3, 6, 1, 5, 2, 70])  # per step, in turns of two contenders; four rounds

    monkeypatch.setattr(bench.Child, "measure", lambda *_, **__: next(seconds))
    monkeypatch.setattr(bench, "_groups", lambda _: [(bench.OURS, bench.WORKER)])
    ours, worker = bench.measure_task("examples.chase:make", steps=1, rounds=3)
    assert (ours.per_second, ours.ratio) == (0.5, 1.0)
    assert (worker.milliseconds, worker.ratio) == (6000.0, pytest.approx(1 / 3))


def test_contenders_take_turns():
    turns = iter(range(8))
    times = in_turns({"a": lambda: next(turns), "b": lambda: next(turns)}, rounds=3)
    assert times == {"a": [2, 4, 6], "b": [3, 5, 7]}


def test_a_child_runs_for_as_long_as_it_is_asked_to():
    with bench.served("examples.chase:make", [bench.OURS]) as (child,):
        child.begin(seconds=0.2)
        assert 0 < child.result() < 0.2
        assert child.measure(steps=3) < 0.2


def test_a_failing_contender_is_named():
    with pytest.raises(UserError, match="the contender 'ogspr in-process' failed"):
        run(["tests.helpers.worlds:raising"])


def test_misspelt_tasks_are_found_before_anything_is_measured():
    with pytest.raises(UserError, match="did you mean atari:Pong"):
        run(["examples.chase:make", "atari:Pnog"])
