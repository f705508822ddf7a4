import csv
from dataclasses import replace

import pytest

from benchmarks import train as module
from benchmarks.commands import Train
from benchmarks.train import PHASES, TrainResult
from ogspr.agents.methods import method_of
from ogspr.errors import UserError
from ogspr.training.presets import preset_options
from tests.benchmarks.reports import make_report, measured
from tests.training.learners import OTHER_METHODS
from tests.training.runs import TASK, tiny_options


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def tiny_recipe(preset, task):
        method = method_of(preset_options(preset, task).agent).name  # says so where there is none
        agent = OTHER_METHODS.get(method, tiny_options().agent)
        return tiny_options(agent=replace(agent, random_steps=5), agent_steps=1000)

    monkeypatch.setattr(module, "preset_options", tiny_recipe)


def test_table_and_csv_hold_what_was_measured(tmp_path):
    path = tmp_path / "train.csv"
    results, text = measured(Train(task=TASK, seeds=(1, 2), warm_up=80), path, width=200)
    rows = list(csv.DictReader(path.open()))
    assert [(row["seeds"], row["agent_steps"]) for row in rows] == [("1", "50"), ("2", "50")]
    for row, result in zip(rows, results, strict=True):
        assert float(row["milliseconds"]) == pytest.approx(result.milliseconds, abs=1e-3)
        assert result.hours == pytest.approx(result.milliseconds * 500 / 3600)
        # Every moment belongs to a phase.
        assert sum(result.phases.values()) == pytest.approx(result.milliseconds, rel=0.02)
        assert all(result.phases[name] > 0 for name in PHASES)  # one evaluation is among the timed steps
    assert results[1].ratio == pytest.approx(2 * results[0].milliseconds / results[1].milliseconds)
    assert "h for 500k" in text


def test_the_table_fits_into_80_columns():
    report = make_report(width=80)
    phases = dict.fromkeys(PHASES, 11.11)
    numbers = (15_402_380, 5, 5000, 118.40, 10.77, phases, 1)
    module.show([TrainResult(TASK, name, *numbers) for name in ("ogspr", "shared-adapter")], report)
    text = report.console.file.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text  # nothing is cut off
    row = next(line for line in text.splitlines() if line.startswith("ogspr"))
    # `rest` holds two phases.
    assert row.split() == ["ogspr", "15.40M", "5", "118.40", "10.77", *["11.11"] * 5, "22.22", "16.44"]
    assert {*PHASES} - {*module._HEADINGS} == {"log"}


@pytest.mark.parametrize(("warm_up", "told"), [(50, False), (51, True)])
def test_an_evaluation_that_is_not_over_is_mentioned(warm_up, told):
    _, text = measured(Train(task=TASK, seeds=(1,), warm_up=warm_up, overlap=True), width=300)
    assert ("1 seeds of ogspr, an evaluation was still running" in text) == told


def test_methods_are_measured_one_after_the_other(tmp_path):
    path, methods = tmp_path / "train.csv", ("ogspr", "mrq", "drqv2")
    measured(Train(task=TASK, methods=methods, seeds=(1,), steps=5, warm_up=10), path)
    rows = list(csv.DictReader(path.open()))
    assert tuple(row["preset"] for row in rows) == methods
    sizes = [int(row["parameters"]) for row in rows]
    assert min(sizes) > 1000
    assert len(set(sizes)) == len(methods)  # three agents, not one


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"seeds": (0,)}, "must be at least 1"),
        ({"methods": ("ogspr", "ogsrp")}, "unknown preset 'ogsrp'; did you mean ogspr"),
    ],
)
def test_mistakes_are_told(options, complaint):
    with pytest.raises(UserError, match=complaint):
        measured(Train(task=TASK, **options))
