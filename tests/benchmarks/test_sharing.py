"""The benchmark measures what it says; how fast anything is, is no matter for tests."""

import csv

import pytest

from benchmarks import env, sharing
from benchmarks.commands import Sharing
from ogspr.errors import UserError
from tests.benchmarks.reports import measured

TASK = "dmc:cartpole-balance"


def run(task=TASK, out=None, **options):
    wanted = Sharing(task=task, **({"batch_size": 2, "drawers": (1, 2), "seconds": 0.3} | options))
    return measured(wanted, out)


@pytest.mark.usefixtures("opengl")
def test_table_and_csv_hold_what_was_measured(tmp_path):
    path = tmp_path / "sharing.csv"
    results, text = run(out=path)
    assert [(result.drawers, result.updates_a_second is not None) for result in results] == [
        (0, True),
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]
    alone = results[0]
    for result in results:
        assert result.updates_a_second is None or result.updates_a_second > 0
        assert (result.frames_a_second is not None) == (result.drawers > 0)
        assert result.frames_a_second is None or result.frames_a_second > 0
    for drawing, both in (results[1:3], results[3:5]):
        updates = both.updates_a_second / alone.updates_a_second
        frames = both.frames_a_second / drawing.frames_a_second
        assert both.together == pytest.approx(updates + frames)
        assert f"{both.together:.2f}" in text
    rows = list(csv.DictReader(path.open()))
    assert [row["drawers"] for row in rows] == ["0", "1", "1", "2", "2"]
    assert [bool(row["together"]) for row in rows] == [False, False, True, False, True]
    assert "rendered by" in rows[0]["hardware"]


def test_counts_by_hand(monkeypatch):
    now = [0.0]

    class Child:
        """Renders ten frames a second."""

        def begin(self, *, seconds):
            assert seconds == 2.0

        def result(self):
            return 0.1

    def update():
        now[0] += 0.25

    monkeypatch.setattr(sharing.time, "perf_counter", lambda: now[0])
    wanted = Sharing(seconds=2.0)
    result = sharing._measure(wanted, update, [Child(), Child()])
    assert (result.updates_a_second, result.frames_a_second) == (4.0, 20.0)
    result = sharing._measure(wanted, None, [Child()])
    assert (result.updates_a_second, result.frames_a_second) == (None, 10.0)


@pytest.mark.parametrize(
    ("task", "options", "complaint"),
    [
        ("atari:Pong", {}, "atari:Pong is not rendered by OpenGL"),
        ("dmc:cartpole-balanse", {}, "cartpole-balance"),
        (TASK, {"drawers": (0,)}, "must be at least 1"),
        (TASK, {"seconds": 0.0}, "seconds must be above 0"),
    ],
)
def test_mistakes_are_told(task, options, complaint):
    with pytest.raises(UserError, match=complaint):
        run(task, **options)


def test_a_process_that_cannot_render_is_reported(monkeypatch):
    monkeypatch.setattr(env, "_build", abs)  # fails at once: it gets two arguments
    with pytest.raises(UserError, match="the contender 'ogspr draw only' failed"):
        run()
