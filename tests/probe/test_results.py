import csv
from dataclasses import replace
from pathlib import Path

import pytest

from ogspr.analysis.probing import NEXT_STATE, STATE, SUM
from ogspr.probe.probing import HeadTraining, Loss
from ogspr.probe.results import ProbeRow, draw, summarise, write_rows

TASK = "dmc:dog-trot"
# (seed, collector): state loss, next-state loss; summed over ten dimensions.
FOUND = {
    (0, "OG-SPR"): (1.0, 10.0),
    (0, "OG-SPR - SP"): (3.0, 30.0),
    (1, "OG-SPR"): (5.0, 50.0),
    (1, "OG-SPR - SP"): (9.0, 70.0),
}


def rows(method="OG-SPR - SP", task=TASK):
    return [
        ProbeRow(
            task=task,
            method=method,
            seed=seed,
            collector=collector,
            collector_seed=seed,
            loss=name,
            found=Loss(value, value / 2, 10),
            agent_steps=100,
            collector_score=12.5,
            run=Path(f"{method}-{seed}"),
        )
        for (seed, collector), values in FOUND.items()
        for name, value in zip((STATE, NEXT_STATE), values, strict=True)
    ]


def by_loss(method="OG-SPR - SP", task=TASK):
    return {summary.loss: summary for summary in summarise(rows(method, task))}


def test_means_are_over_collectors_then_over_runs():
    found = by_loss()
    # Runs: (1 + 3) / 2 = 2 and (5 + 9) / 2 = 7; next state 20 and 60.
    assert found[STATE].squared_norm.value == pytest.approx(4.5)
    assert found[NEXT_STATE].squared_norm.value == pytest.approx(40)
    assert found[SUM].squared_norm.value == pytest.approx(44.5)
    assert found[STATE].per_dimension.value == pytest.approx(0.45)
    assert found[STATE].runs == 2


def test_intervals_are_over_runs():
    """Of two runs a resample has both with chance 1/2, so a 95 % interval reaches from one to the other."""
    state = by_loss()[STATE].squared_norm
    assert (state.low, state.high) == pytest.approx((2.0, 7.0))
    both = by_loss()[SUM].squared_norm
    assert (both.low, both.high) == pytest.approx((22.0, 67.0))


def test_a_run_with_more_collectors_does_not_count_more():
    more = [*rows(), *(replace(row, collector="another") for row in rows() if row.seed == 1)]
    found = {summary.loss: summary for summary in summarise(more)}
    assert found[STATE].squared_norm.value == pytest.approx(4.5)


def test_the_papers_numbers_stand_beside_ours_where_it_has_them():
    paper = by_loss("OG-SPR - SP")[STATE].paper
    assert (paper.value, paper.low, paper.high) == (0.984, 0.947, 1.019)
    assert by_loss("OG-SPR")[NEXT_STATE].paper.value == 1.042
    assert by_loss("OG-SPR")[SUM].paper is None
    assert by_loss("No Adapter")[STATE].paper is None
    assert by_loss("OG-SPR", "dmc:walker-run")[STATE].paper is None
    assert by_loss("OG-SPR", "some.module:dog-trot")[STATE].paper is None


def test_methods_keep_their_order():
    summaries = summarise([*rows("OG-SPR - SP"), *rows("OG-SPR")])
    assert [summary.method for summary in summaries] == ["OG-SPR - SP"] * 3 + ["OG-SPR"] * 3


def test_a_csv_row_says_what_its_number_is(tmp_path):
    path = tmp_path / "deep" / "probe.csv"
    write_rows(path, rows(), HeadTraining(50, 4), episodes=7, seed=3, policy="last")
    written = list(csv.DictReader(path.open()))
    assert len(written) == 8
    assert written[3] == {
        "task": TASK,
        "method": "OG-SPR - SP",
        "seed": "0",
        "collector": "OG-SPR - SP",
        "collector_seed": "0",
        "loss": "next_state",
        "value": "30.0",
        "value_per_dimension": "3.0",
        "training_value": "15.0",
        "dimensions": "10",
        "agent_steps": "100",
        "collector_score": "12.5",
        "policy": "last",
        "episodes": "7",
        "updates": "50",
        "batch_size": "4",
        "learning_rate": "0.0003",
        "clip_norm": "20.0",
        "probe_seed": "3",
        "run": "OG-SPR - SP-0",
    }


@pytest.mark.parametrize("task", [TASK, "dmc:walker-run"])
def test_the_figure_lies_beside_the_csv_file(tmp_path, task):
    summaries = summarise([*rows("OG-SPR", task), *rows("No Adapter", task)])
    paths = draw(summaries, task, tmp_path / "probe.csv")
    assert [path.name for path in paths] == ["probe.png", "probe.pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
