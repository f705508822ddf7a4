"""The benchmark measures what it says; how fast anything is, is no matter for tests."""

import csv
import io

import pytest
from rich.console import Console

from ogspr.bench import sharing
from ogspr.bench.options import SharingBench
from ogspr.bench.sharing import bench_sharing
from ogspr.errors import UserError

TASK = "dmc:cartpole-balance"


def run(task=TASK, out=None, **options):
    text = io.StringIO()
    bench = SharingBench(**({"batch_size": 2, "drawers": (1, 2), "seconds": 0.3} | options))
    return bench_sharing(task, bench, out=out, console=Console(file=text, width=100)), text.getvalue()


@pytest.mark.usefixtures("opengl")
def test_table_and_csv_hold_what_was_measured(tmp_path):
    path = tmp_path / "sharing.csv"
    results, text = run(out=path)
    assert [(result.drawers, result.updating) for result in results] == [
        (0, True),
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]
    alone = results[0]
    for result in results:
        assert (result.updates_a_second > 0) == result.updating
        assert (result.frames_a_second > 0) == (result.drawers > 0)
    for drawing, both in (results[1:3], results[3:5]):
        updates = both.updates_a_second / alone.updates_a_second
        frames = both.frames_a_second / drawing.frames_a_second
        assert both.together == pytest.approx(updates + frames)
        assert f"{both.together:.2f}" in text
    rows = list(csv.DictReader(path.open()))
    assert [row["drawers"] for row in rows] == ["0", "1", "1", "2", "2"]
    assert [bool(row["together"]) for row in rows] == [False, False, True, False, True]
    assert "drawn by" in rows[0]["hardware"]


def test_counts_by_hand(monkeypatch):
    now = [0.0]

    class Frames:
        """Ten a second."""

        @property
        def value(self):
            return int(10 * now[0])

    def update():
        now[0] += 0.25

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(sharing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(sharing.time, "sleep", sleep)
    result = sharing._measure(2.0, update, [Frames(), Frames()])
    assert (result.updates_a_second, result.frames_a_second) == (4.0, 20.0)
    result = sharing._measure(2.0, None, [Frames()])
    assert (result.updates_a_second, result.frames_a_second) == (0.0, 10.0)


@pytest.mark.parametrize(
    ("task", "options", "complaint"),
    [
        ("atari:Pong", {}, "atari:Pong is not drawn by OpenGL"),
        ("dmc:cartpole-balanse", {}, "cartpole-balance"),
        (TASK, {"drawers": (0,)}, "must be at least 1"),
        (TASK, {"seconds": 0.0}, "seconds must be above 0"),
    ],
)
def test_mistakes_are_told(task, options, complaint):
    with pytest.raises(UserError, match=complaint):
        run(task, **options)


def test_a_process_that_cannot_draw_is_told(monkeypatch):
    monkeypatch.setattr(sharing, "_draw", len)  # fails at once: it gets two arguments
    with pytest.raises(UserError, match="should draw does not"), sharing._drawers(TASK, 1):
        pass
