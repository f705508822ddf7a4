import csv
import shutil
from dataclasses import replace

import pytest
import torch

from benchmarks.commands import Precisions
from benchmarks.precision import (
    _SEED,
    ANOTHER_BATCH,
    _by_part,
    _gradients,
    _load,
    _settings,
    by_chance,
    by_rounding,
)
from ogspr.agents.agent import Agent
from ogspr.agents.methods import METHODS
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.training.learner import Learner
from ogspr.training.saved_run import open_run
from tests.benchmarks.reports import measured
from tests.training.learners import OTHER_METHODS
from tests.training.runs import KEEP_REPLAY, final_state, request, tiny_options, train

MODE, PRECISIONS = ("graph", ("tf32", "bf16")) if torch.cuda.is_available() else ("eager", ("bf16",))
PARTS = {"ogspr": {"value", "policy"}, "mrq": {"encoder", "value", "policy"}, "drqv2": {"value", "policy"}}


def trained(folder, method="ogspr", agent_steps=60, **changes):
    agent = OTHER_METHODS.get(method, tiny_options().agent)
    agent = replace(agent, batch_size=4, random_steps=30, **changes)
    wanted = replace(request(folder, agent=agent, agent_steps=agent_steps, keep=KEEP_REPLAY), preset=method)
    train(wanted)
    return wanted.folders[0]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run"))


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


def compared(run, out=None, updates=4, mode=None):
    return measured(Precisions(folder=run, updates=updates, mode=mode), out, width=80)


@pytest.mark.parametrize("method", METHODS)
def test_rounding_changes_gradients_less_than_another_batch(method, tmp_path):
    results, _ = compared(trained(tmp_path, method))
    found = {(result.part, result.compared): result for result in results}
    assert set(found) == {(part, name) for part in PARTS[method] for name in (ANOTHER_BATCH, *PRECISIONS)}
    for part in PARTS[method]:
        rounding, chance = found[part, "bf16"], found[part, ANOTHER_BATCH]
        assert 0 < rounding.error < 0.2 < chance.error
        assert 0 < rounding.mean_error < chance.mean_error
        assert chance.cosine < rounding.cosine < 1


def test_a_burst_that_is_due_is_not_made(tmp_path):
    """Else two encoders would have gone their own ways before the values' gradients are compared."""
    run = trained(tmp_path, "mrq", agent_steps=58)
    assert final_state(run)["learner"]["updates"] % OTHER_METHODS["mrq"].target_period == 0
    assert {result.part for result in compared(run)[0]} == PARTS["mrq"]


def test_gradients_are_those_of_the_next_update(tmp_path):
    """DrQ-v2's noise follows a schedule, which no saved state holds; here it falls fast."""
    run = trained(tmp_path, "drqv2", noise_steps=100)
    opened = open_run(run, print, with_replay=True)
    settings = _settings(opened, CPU)
    learner = Learner(settings, place="device", seed=_SEED, state_folder=tmp_path, report=print)
    before, _ = _load(opened, learner)
    learner.update(61)  # of 60 agent steps; every second one is followed by an update
    after = learner.state_dict()
    assert learner.agent.method._noise_scale == pytest.approx(1 - 0.9 * 0.6)
    for part, (found,) in _gradients(opened, settings, updates=1).items():
        assert torch.equal(found, _by_part(before, after)[part])


def test_table_and_csv_hold_what_was_compared(finished_run, tmp_path):
    path = tmp_path / "precision.csv"
    results, text = compared(finished_run, path)
    rows = list(csv.DictReader(path.open()))
    assert [(row["part"], row["compared"]) for row in rows] == [(r.part, r.compared) for r in results]
    for name in ("error", "cosine", "mean_error"):
        numbers = [getattr(result, name) for result in results]
        assert [float(row[name]) for row in rows] == pytest.approx(numbers, rel=1e-5)
        assert all(f"{number:.4f}" in text for number in numbers)
    assert (rows[0]["agent_steps"], rows[0]["updates"], rows[0]["mode"]) == ("60", "4", MODE)


def test_the_same_batches_give_the_same_numbers(finished_run):
    assert compared(finished_run)[0] == compared(finished_run)[0]


@pytest.mark.gpu
def test_updates_in_a_graph_round_about_as_plain_ones_do(finished_run):
    plain, graph = (compared(finished_run, mode=mode)[0] for mode in ("eager", "graph"))
    unit = 2.0**-10  # a unit of TF32 relative to the number: below it, which kernels are chosen decides
    for one, other in zip(plain, graph, strict=True):
        assert (one.part, one.compared) == (other.part, other.compared)
        assert other.error < max(1.5 * one.error, 2 * unit)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_mode_that_the_device_does_not_have_is_told_before_anything_is_computed(run, monkeypatch):
    monkeypatch.setattr(Agent, "phases", lambda *_: pytest.fail("computed"))
    with pytest.raises(UserError, match="needs a CUDA device"):
        compared(run, mode="graph")


def test_the_run_is_not_changed(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    compared(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_numbers_by_hand():
    exact = {"policy": [torch.tensor([3.0, 4.0]), torch.tensor([3.0, -4.0])]}
    found = {"policy": [torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0]) * 2]}
    (chance,) = by_chance(exact)
    assert (chance.part, chance.compared) == ("policy", ANOTHER_BATCH)
    assert chance.error == pytest.approx(8 / 5)
    assert chance.cosine == pytest.approx((9 - 16) / 25)
    assert chance.mean_error == pytest.approx(4 / 3)  # deviations of 4, over sqrt(2), sqrt(1) and sqrt(2)
    (rounding,) = by_rounding("bf16", found, exact)
    assert rounding.error == pytest.approx((0 + 5**0.5 * 5 / 5) / 2)
    assert rounding.cosine == pytest.approx((1 + 0) / 2)
    assert rounding.mean_error == pytest.approx((2.5**2 + 5.0**2) ** 0.5 / 3)


def test_no_run_is_told(tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder \(no config\.json\)\. Pass the folder"):
        compared(tmp_path)


def test_a_run_that_has_hardly_begun_is_told(tmp_path):
    with pytest.raises(UserError, match=r"at agent step 2, .* no steps to learn from; train it further"):
        compared(trained(tmp_path, agent_steps=2))


def test_one_update_is_too_few(finished_run):
    with pytest.raises(UserError, match="at least 2"):
        compared(finished_run, updates=1)


@pytest.mark.parametrize("damage", ["gone", "truncated", "flipped"])
def test_a_damaged_replay_is_told(run, damage):
    for piece in (run / "replay").iterdir():
        content = bytearray(piece.read_bytes())
        piece.unlink()
        if damage == "truncated":
            piece.write_bytes(content[:-10])
        elif damage == "flipped":
            content[-1] ^= 1
            piece.write_bytes(content)
    with pytest.raises(UserError, match=r"none of \d checkpoints .* can be used"):
        compared(run)


def test_an_update_that_fails_is_told(run, monkeypatch):
    """Rewards that are no numbers, as a broken environment may have given them."""
    put_back = Learner.put_back

    def spoiled(self, first, stored):
        real = {name: tensor for name, tensor in stored.items() if tensor.is_floating_point()}
        put_back(self, first, stored | {name: tensor * float("nan") for name, tensor in real.items()})

    monkeypatch.setattr(Learner, "put_back", spoiled)
    with pytest.raises(UserError, match=r"in fp32 its next update of the .* non-finite"):
        compared(run)


def test_a_replay_that_does_not_fit_is_told(finished_run, monkeypatch):
    monkeypatch.setattr("ogspr.replay.storage.free_host_bytes", lambda: 10)
    with pytest.raises(UserError, match=r"its replay does not fit: .*; use a machine with more memory\.$"):
        compared(finished_run)
