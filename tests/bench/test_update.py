import csv
from io import StringIO

import pytest
from rich.console import Console

from ogspr.bench.options import UpdateBench
from ogspr.bench.update import bench_update
from ogspr.errors import UserError

QUICK = {"batch_size": 2, "capacity": 40, "updates": 1, "rounds": 1, "learners": (1, 2)}


def run(out=None, **options):
    text = StringIO()
    console = Console(file=text, width=100)
    return bench_update(UpdateBench(**(QUICK | options)), out=out, console=console), text.getvalue()


def test_table_and_csv_hold_what_was_measured(tmp_path):
    path = tmp_path / "update.csv"
    results, text = run(path, modes=("eager",), precisions=("fp32", "bf16"))
    rows = list(csv.DictReader(path.open()))
    assert [(row["mode"], row["precision"], row["learners"]) for row in rows] == [
        ("eager", "fp32", "1"),
        ("eager", "bf16", "1"),
        ("eager", "bf16", "2"),
    ]
    for row, result in zip(rows, results, strict=True):
        assert float(row["milliseconds"]) == pytest.approx(result.milliseconds, abs=1e-3)
        assert row["hardware"]
    assert results[0].ratio == 1.0
    assert results[2].ratio == pytest.approx(2 * results[0].milliseconds / results[2].milliseconds)
    assert "optimise" in text
    assert "replay: 40 steps" in text


def test_phases_add_up_to_a_whole_update(monkeypatch):
    """The differences between updates cut off later and later; one learner alone is cut into phases."""
    ends = iter([10.0, 1.0, 3.0, 6.0, 10.0, 20.0])  # whole, then cut after each phase; then two learners
    monkeypatch.setattr("ogspr.bench.update._timed_rounds", lambda *_: [next(ends)])
    results, _ = run(modes=("eager",), precisions=("fp32",))
    assert results[0].phases == {"sample": 1.0, "forward": 2.0, "backward": 3.0, "optimise": 4.0}
    assert sum(results[0].phases.values()) == results[0].milliseconds
    assert results[1].phases == {}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"updates": 0}, "updates must be at least 1"),
        ({"learners": (0,)}, "must be at least 1"),
        ({"variant": "ogsrp"}, "did you mean ogspr"),
        ({"suite": "dmcc"}, "unknown suite"),
        ({"capacity": 5}, "at least 9 steps"),
    ],
)
def test_mistakes_are_told(options, complaint):
    with pytest.raises(UserError, match=complaint):
        run(**options)
