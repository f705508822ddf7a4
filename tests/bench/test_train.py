import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from ogspr.agents.methods import method_of
from ogspr.bench import train as module
from ogspr.bench.options import TrainBench
from ogspr.bench.train import PHASES, TrainResult, bench_train
from ogspr.errors import UserError
from ogspr.train.recipes import recipe
from tests.train.learners import OTHER_METHODS
from tests.train.runs import TASK, tiny_options


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def tiny_recipe(preset, task):
        method = method_of(recipe(preset, task).agent).name  # says so where there is none
        agent = OTHER_METHODS.get(method, tiny_options().agent)
        return tiny_options(agent=replace(agent, random_steps=5), agent_steps=1000)

    monkeypatch.setattr(module, "recipe", tiny_recipe)


def console():
    return Console(file=io.StringIO(), width=200)


def test_table_and_csv_hold_what_was_measured(tmp_path):
    path, screen = tmp_path / "train.csv", console()
    results = bench_train(TASK, TrainBench(seeds=(1, 2), warm_up=80), out=path, console=screen)
    rows = list(csv.DictReader(path.open()))
    assert [(row["seeds"], row["agent_steps"]) for row in rows] == [("1", "50"), ("2", "50")]
    for row, result in zip(rows, results, strict=True):
        assert float(row["milliseconds"]) == pytest.approx(result.milliseconds, abs=1e-3)
        assert result.hours == pytest.approx(result.milliseconds * 500 / 3600)
        # Every moment belongs to a phase.
        assert sum(result.phases.values()) == pytest.approx(result.milliseconds, rel=0.02)
        assert all(result.phases[name] > 0 for name in PHASES)  # one evaluation is among the timed steps
    assert results[1].ratio == pytest.approx(2 * results[0].milliseconds / results[1].milliseconds)
    assert "h for 500k" in screen.file.getvalue()


def test_the_table_fits_into_80_columns():
    screen = Console(file=io.StringIO(), width=80)
    phases = dict.fromkeys(PHASES, 11.11)
    numbers = (15_402_380, 5, 118.40, 10.77, phases, 5000, 1)
    screen.print(module._table([TrainResult(name, *numbers) for name in ("ogspr", "shared-adapter")]))
    assert "\N{HORIZONTAL ELLIPSIS}" not in screen.file.getvalue()  # nothing is cut off
    row = next(line for line in screen.file.getvalue().splitlines() if line.startswith("ogspr"))
    # The last phase holds two.
    assert row.split() == ["ogspr", "15.40M", "5", "118.40", "10.77", *["11.11"] * 5, "22.22", "16.44"]
    assert sum(11.11 * len(names) for names in module._SHOWN.values()) == pytest.approx(11.11 * len(PHASES))


@pytest.mark.parametrize(("warm_up", "told"), [(50, False), (51, True)])
def test_an_evaluation_that_is_not_over_is_mentioned(warm_up, told):
    screen = console()
    bench_train(TASK, TrainBench(seeds=(1,), warm_up=warm_up, overlap=True), out=None, console=screen)
    assert ("evaluation was still going on with 1 seeds of ogspr" in screen.file.getvalue()) == told


def test_methods_are_measured_one_after_the_other(tmp_path):
    path, methods = tmp_path / "train.csv", ("ogspr", "mrq", "drqv2")
    bench = TrainBench(methods=methods, seeds=(1,), steps=5, warm_up=10)
    bench_train(TASK, bench, out=path, console=console())
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
        bench_train(TASK, TrainBench(**options), out=None, console=console())
