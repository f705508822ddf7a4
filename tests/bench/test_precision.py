import csv
import io
import shutil

import pytest
import torch
from rich.console import Console

from ogspr.bench.precision import ANOTHER_BATCH, _compared, bench_precision, gradient_of_update
from ogspr.errors import UserError
from tests.train.learners import OTHER_METHODS, make_learner
from tests.train.runs import request, train


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    wanted = request(tmp_path_factory.mktemp("run"))
    train(wanted)
    return wanted.folders[0]


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


def compared(run, out=None, updates=4):
    text = io.StringIO()
    results = bench_precision(run, updates=updates, out=out, console=Console(file=text, width=80))
    return results, text.getvalue()


def test_rounding_changes_gradients_less_than_another_batch(finished_run, tmp_path):
    path = tmp_path / "precision.csv"
    results, text = compared(finished_run, path)
    errors = {(result.part, result.compared): result.error for result in results}
    assert set(errors) == {(part, name) for part in ("value", "policy") for name in (ANOTHER_BATCH, "bf16")}
    for part in ("value", "policy"):
        assert 0 < errors[part, "bf16"] < 0.2 < errors[part, ANOTHER_BATCH]
    rows = list(csv.DictReader(path.open()))
    assert [(row["part"], row["compared"]) for row in rows] == [(r.part, r.compared) for r in results]
    assert [float(row["error"]) for row in rows] == pytest.approx([r.error for r in results], abs=1e-6)
    assert "replay:" in text and str(path) in text.replace("\n", "")


def test_the_same_batches_give_the_same_numbers(finished_run):
    assert compared(finished_run)[0] == compared(finished_run)[0]


def test_the_run_is_not_changed(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    compared(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_gradient_is_the_one_that_the_optimiser_was_given():
    """Against the update's own backward pass, of the same batch; clipped like AdamW's."""
    learner, twin = make_learner(), make_learner()
    for one in (learner, twin):
        for _ in range(3):  # so that moments are not zero
            one.update()
    update = twin.agent._update
    _, right = update._backward(update._forward(update._sample(twin.replay)))
    before = learner.state_dict()
    learner.update()
    found = gradient_of_update(before["tensors"], learner.state_dict()["tensors"])
    for part, vectors, optimiser in (
        ("value", right.value, update._value_optimiser),
        ("policy", right.policy, update._policy_optimiser),
    ):
        clipped = torch.cat(
            [
                view.flatten() / optimiser._divisor(vector.norm())
                for group, vector in zip(optimiser._groups, vectors, strict=True)
                for view in group._views(vector)
            ]
        )
        assert (found[part] - clipped).norm() < 1e-4 * clipped.norm()


def test_what_learns_in_bursts_is_compared_where_it_takes_one_step():
    learner = make_learner(config=OTHER_METHODS["mrq"])
    start = learner.state_dict()["tensors"]
    learner.update()  # targets are copied before it, and the encoder has learned four times
    synced = learner.state_dict()["tensors"]
    assert set(gradient_of_update(start, synced)) == {"value", "policy"}


def test_numbers_by_hand():
    right = [{"policy": torch.tensor([3.0, 4.0])}, {"policy": torch.tensor([3.0, 4.0])}]
    found = [{"policy": torch.tensor([3.0, 4.0])}, {"policy": torch.tensor([-4.0, 3.0]) * 2}]
    (result,) = _compared("bf16", found, right)
    assert (result.part, result.compared) == ("policy", "bf16")
    assert result.error == pytest.approx((0.0 + 5.0**0.5) / 2)
    assert result.cosine == pytest.approx((1.0 + 0.0) / 2)
    assert result.length == pytest.approx((1.0 + 2.0) / 2)


def test_no_run_is_told(tmp_path):
    with pytest.raises(UserError, match="is no run"):
        compared(tmp_path)


def test_one_update_is_too_few(finished_run):
    with pytest.raises(UserError, match="at least 2"):
        compared(finished_run, updates=1)


def test_a_run_without_its_replay_is_told(run):
    shutil.rmtree(run / "replay")
    with pytest.raises(UserError, match="replay"):
        compared(run)


def test_an_update_that_fails_is_told(run, monkeypatch):
    monkeypatch.setattr("ogspr.bench.precision.gradient_of_update", lambda *_: {})
    with pytest.raises(UserError, match="not finite"):
        compared(run)
