"""The benchmark measures what it says; how fast anything is, is no matter for tests."""

import csv

import pytest
from rich.console import Console

from ogspr.bench import env as bench
from ogspr.errors import UserError


def run(tasks, out=None):
    console = Console(record=True, width=120)
    results = bench.bench_env(tasks, steps=4, rounds=1, out=out, console=console)
    return results, console.export_text()


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
    seconds = iter([100, 100, 3, 6, 1, 5, 2, 70])  # turns of two contenders, four rounds

    monkeypatch.setattr(bench, "_timed", lambda *_: next(seconds))
    times = bench._take_turns("examples.chase:make", [bench.OURS, bench.WORKER], steps=1, rounds=3)
    assert times == {bench.OURS: [3, 1, 2], bench.WORKER: [6, 5, 70]}
    monkeypatch.setattr(bench, "_take_turns", lambda *_: times)
    monkeypatch.setattr(bench, "_groups", lambda _: [(bench.OURS, bench.WORKER)])
    ours, worker = bench._measure_task("examples.chase:make", steps=1, rounds=3)
    assert (ours.per_second, ours.ratio) == (0.5, 1.0)
    assert (worker.milliseconds, worker.ratio) == (6000.0, pytest.approx(1 / 3))


def test_a_failing_contender_is_named():
    with pytest.raises(UserError, match="the contender 'ogspr in-process' failed"):
        run(["tests.helpers.worlds:raising"])


def test_misspelt_tasks_are_found_before_anything_is_measured():
    with pytest.raises(UserError, match="did you mean atari:Pong"):
        run(["examples.chase:make", "atari:Pnog"])
