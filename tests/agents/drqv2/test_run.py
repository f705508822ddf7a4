"""Whole runs by configuration alone: trained, stopped, resumed, evaluated, exported, loaded."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import ogspr
from ogspr.agents.drqv2 import DrQv2Config, Sizes
from ogspr.commands import policy as commands
from ogspr.records.run import RunFolder
from ogspr.records.structure import plain
from ogspr.train.run_config import read_config
from ogspr.train.signals import Stopped
from tests.train import runs
from tests.train.test_runs import StopAfter

CONFIG = DrQv2Config(
    sizes=Sizes(4, 8, 16), batch_size=4, random_steps=30, noise_steps=100, shift_pad=2, learning_rate=1e-3
)


def request(folder, **changes):
    return replace(runs.request(folder, agent=CONFIG, **changes), preset="drqv2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("run")
    runs.train(request(folder))
    return folder / "seed-0"


def test_a_run_updates_after_every_second_step(run):
    state = runs.final_state(run)
    assert state["trainer"]["progress"]["agent_steps"] == 150
    assert state["learner"]["updates"] == 60  # after the steps 31, 33, ... 149
    assert read_config(RunFolder(run)).options["agent"] == plain(CONFIG)


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(run, tmp_path):
    for rounds in (1, 50, 3, 60):
        with pytest.raises(Stopped):
            runs.train(request(tmp_path), stop=StopAfter(rounds))
    runs.train(request(tmp_path))
    runs.assert_same_run(tmp_path / "seed-0", run)


def test_seeds_side_by_side_equal_each_alone(run, tmp_path):
    runs.train(request(tmp_path, seeds=(0, 7)))
    for name in runs.TABLES:
        assert (tmp_path / "seed-0" / name).read_text() == (run / name).read_text()
    assert (tmp_path / "seed-7" / "train.csv").read_text() != (run / "train.csv").read_text()


def test_its_policy_is_evaluated_exported_and_loaded(run, tmp_path):
    said = Console(file=io.StringIO(), width=200)
    path = tmp_path / "p.safetensors"
    commands.export(run, policy="best", out=path, console=said)
    options = {"policy": "best", "task": runs.TASK, "episodes": 3, "seed": 5, "workers": False}
    alone, of_run = (commands.evaluate(place, out=None, console=said, **options) for place in (path, run))
    assert len(alone.episodes) == 3
    assert alone.episodes == of_run.episodes
    agent = ogspr.load(path)
    pictures = np.random.default_rng(0).integers(0, 256, (4, *agent.spec.observation_shape), dtype=np.uint8)
    together = agent.act(pictures)
    assert together.shape == (4, 2)
    assert np.allclose(agent.act(pictures[1]), together[1], atol=1e-6)
