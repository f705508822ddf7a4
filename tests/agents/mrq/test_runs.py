"""Whole runs of MR.Q: nothing but the configuration says which method it is."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import ogspr
from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.commands import policy as commands
from ogspr.records.curve import read_rows
from ogspr.train.execution import Execution
from ogspr.train.signals import Stopped
from tests.agents.mrq.scene import small_config
from tests.train.learners import CONTINUOUS, DISCRETE, make_learner
from tests.train.runs import TABLES, TASK, Listener, assert_same_run, request, train
from tests.train.test_runs import StopAfter

TINY = replace(
    MRQConfig(),
    sizes=Sizes(4, 16, 8, 16, 16, 16, 16),
    batch_size=4,
    random_steps=30,
    target_period=20,
    shift_pad=2,
)


def wanted(folder, **changes):
    return replace(request(folder, agent=TINY, agent_steps=110, **changes), preset="mrq")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    train(wanted(folder))
    return folder / "seed-0"


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(unbroken, tmp_path):
    for rounds in (1, 45, 35):
        with pytest.raises(Stopped):
            train(wanted(tmp_path), stop=StopAfter(rounds))
    train(wanted(tmp_path))
    assert_same_run(tmp_path / "seed-0", unbroken)


def test_seeds_side_by_side_equal_each_alone(unbroken, tmp_path):
    train(wanted(tmp_path, seeds=(0, 7)))
    for name in TABLES:
        assert (tmp_path / "seed-0" / name).read_text() == (unbroken / name).read_text()
    assert (tmp_path / "seed-7" / "train.csv").read_text() != (unbroken / "train.csv").read_text()


def test_discrete_actions_and_terminals_are_learned_in_a_whole_run_too(tmp_path):
    train(wanted(tmp_path, task="tests.helpers.worlds:counter"))
    last = list(read_rows(tmp_path / "seed-0" / "train.csv"))[-1]
    assert np.isfinite([float(last[f"{name}_loss"]) for name in ("value", "policy", "encoder", "done")]).all()
    assert float(last["done_loss"]) > 0.0  # its episodes end after ten steps
    assert len(list(read_rows(tmp_path / "seed-0" / "eval.csv"))) == 4 * 3


def test_both_kinds_of_updates_are_written_down(unbroken):
    rows = list(read_rows(unbroken / "train.csv"))
    losses = [
        float(rows[-1][f"{name}_loss"]) for name in ("value", "policy", "encoder", "dynamics", "reward")
    ]
    assert np.isfinite(losses).all()


def test_a_trained_policy_is_loaded_exported_and_evaluated(unbroken, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    path = tmp_path / "p.safetensors"
    commands.export(unbroken, policy="last", out=path, console=console)
    agent, again = ogspr.load(path), ogspr.load(unbroken, policy="last")
    shape = agent.spec.observation_shape
    pictures = np.random.default_rng(0).integers(0, 256, (3, *shape), dtype=np.uint8)
    assert np.array_equal(agent.act(pictures), again.act(pictures))
    options = {"policy": "last", "task": TASK, "seed": 5, "workers": False, "out": None, "console": console}
    found = [commands.evaluate(place, episodes=3, **options).episodes for place in (unbroken, path)]
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_a_run_whose_numbers_are_not_finite_stops_within_a_burst(tmp_path):
    """All updates of the first burst fail; the learner hears of them together."""
    told = Listener()
    learner = make_learner(config=small_config(target_period=12), folder=tmp_path, report=told.line)
    learner.replay.numbers[:, -2] = float("nan")
    with pytest.raises(ogspr.errors.UserError, match=r"12 in a row.*encoder_loss nan.*value_loss nan"):
        learner.update()
    assert "13 updates were left out" in told.lines[0]


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
def test_exploration_is_random_first_then_noisy_and_evaluation_is_neither(spec):
    config = small_config(random_steps=100, exploration_noise=5.0)
    learner = make_learner(spec=spec, config=config)
    picture = np.zeros(spec.observation_shape, np.uint8)
    plain, noisy, random = (
        [learner.act(picture, agent_steps=steps, explore=explore) for _ in range(30)]
        for steps, explore in ((0, False), (100, True), (99, True))
    )
    assert len(np.unique(plain, axis=0)) == 1
    assert len(np.unique(noisy, axis=0)) > 1
    assert len(np.unique(random, axis=0)) > 1
    if spec is CONTINUOUS:  # noise that large leaves nothing between the bounds
        assert np.mean(np.abs(noisy) == 1.0) > 0.5
        assert not (np.abs(random) == 1.0).any()


def test_bf16_learns_about_the_same():
    """Also that no two parts of an update disagree about precision."""
    config = small_config(target_period=2)
    plain, rough = (
        make_learner(config=config, execution=Execution("eager", kind)) for kind in ("fp32", "bf16")
    )
    for learner in (plain, rough):
        for _ in range(3):
            learner.update()
    expected, found = plain.metrics(), rough.metrics()
    assert found["failed_updates"] == 0
    for name in ("dynamics_loss", "reward_loss", "done_loss", "value_loss"):
        assert found[name] == pytest.approx(expected[name], rel=0.1), name
