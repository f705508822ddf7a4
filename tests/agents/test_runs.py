"""Whole runs of the other methods: nothing but the configuration says which one it is."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import ogspr
from ogspr.agents.drqv2 import DrQv2Config
from ogspr.agents.drqv2 import Sizes as DrQv2Sizes
from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.commands import policy as commands
from ogspr.commands.declared import Eval, Export
from ogspr.records.run import RunFolder
from ogspr.records.settings_io import plain
from ogspr.records.tables import read_rows
from ogspr.training.saved_run import read_config
from ogspr.training.signals import Stopped
from tests.agents.mrq.scene import small_config
from tests.training import runs
from tests.training.learners import make_learner
from tests.training.test_runs import StopAfter

COMMON = {"batch_size": 4, "random_steps": 30, "shift_pad": 2}
METHODS = {
    "mrq": MRQConfig(sizes=Sizes(4, 16, 8, 16, 16, 16, 16), target_period=20, **COMMON),
    "drqv2": DrQv2Config(sizes=DrQv2Sizes(4, 8, 16), noise_steps=100, learning_rate=1e-3, **COMMON),
}
UPDATES = {"mrq": 80, "drqv2": 40}  # after steps 31, 32, ... 110, and 31, 33, ... 109


def wanted(folder, name, **changes):
    return replace(runs.request(folder, agent=METHODS[name], agent_steps=110, **changes), preset=name)


@pytest.fixture(scope="module", params=METHODS)
def run(tmp_path_factory, request):
    """The name of a method, and a run of it that nobody disturbed."""
    folder = tmp_path_factory.mktemp(request.param)
    runs.train(wanted(folder, request.param))
    return request.param, folder / "seed-0"


def test_a_run_updates_as_its_method_says(run):
    name, folder = run
    state = runs.final_state(folder)
    assert state["trainer"]["progress"]["agent_steps"] == 110
    assert state["learner"]["updates"] == UPDATES[name]
    assert read_config(RunFolder(folder)).options["agent"] == plain(METHODS[name])
    last = read_rows(folder / "train.csv")[-1]
    losses = {"mrq": ("value", "policy", "encoder", "dynamics", "reward"), "drqv2": ("value", "policy")}[name]
    assert np.isfinite([last[f"{loss}_loss"] for loss in losses]).all()


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(run, tmp_path):
    name, folder = run
    for rounds in (1, 45, 3, 35):
        with pytest.raises(Stopped):
            runs.train(wanted(tmp_path, name), stop=StopAfter(rounds))
    runs.train(wanted(tmp_path, name))
    runs.assert_same_run(tmp_path / "seed-0", folder)


def test_seeds_side_by_side_equal_each_alone(run, tmp_path):
    name, folder = run
    runs.train(wanted(tmp_path, name, seeds=(0, 7)))
    for table in runs.TABLES:
        assert (tmp_path / "seed-0" / table).read_text() == (folder / table).read_text()
    assert (tmp_path / "seed-7" / "train.csv").read_text() != (folder / "train.csv").read_text()


def test_its_policy_is_evaluated_exported_and_loaded(run, tmp_path):
    _, folder = run
    said, path = Console(file=io.StringIO(), width=200), tmp_path / "p.safetensors"
    commands.export(Export(path=folder, policy="last", out=path), said)
    options = {"policy": "last", "task": runs.TASK, "episodes": 3, "seed": 5, "workers": False}
    alone, of_run = (commands.evaluate(Eval(path=place, **options), said) for place in (path, folder))
    assert len(alone.episodes) == 3
    assert alone.episodes == of_run.episodes
    policy, again = ogspr.load(path), ogspr.load(folder, policy="last")
    images = np.random.default_rng(0).integers(0, 256, (4, *policy.spec.observation_shape), dtype=np.uint8)
    together = policy.act(images)
    assert together.shape == (4, 2)
    assert np.array_equal(again.act(images), together)
    assert np.allclose(policy.act(images[1]), together[1], atol=1e-6)


def test_discrete_actions_and_terminals_are_learned_in_a_whole_run_too(tmp_path):
    runs.train(wanted(tmp_path, "mrq", task="tests.helpers.worlds:counter"))
    last = read_rows(tmp_path / "seed-0" / "train.csv")[-1]
    assert np.isfinite([last[f"{name}_loss"] for name in ("value", "policy", "encoder", "done")]).all()
    assert last["done_loss"] > 0.0  # its episodes end after ten steps
    assert len(read_rows(tmp_path / "seed-0" / "eval.csv")) == 4 * 3


def test_a_run_whose_numbers_are_not_finite_stops_within_a_burst(tmp_path):
    """All updates of the first burst fail; the learner hears of them together."""
    told = []
    learner = make_learner(config=small_config(target_period=12), folder=tmp_path, report=told.append)
    learner.replay.numbers[:, -2] = float("nan")
    with pytest.raises(ogspr.errors.UserError, match=r"12 in a row.*encoder_loss nan.*value_loss nan"):
        learner.update(10**6)
    assert "13 updates were skipped" in told[0]
