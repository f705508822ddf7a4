"""The method in examples/dqn.py: it learns, and the package does for it what it does for its own."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import ogspr
from examples.dqn import METHOD, DQNConfig, UpdateNoise, q_loss
from ogspr.agents import methods
from ogspr.errors import UserError
from ogspr.types import Window
from tests.helpers.trajectories import ROOT
from tests.learning.classroom import Lesson, Pupil, assert_acts_well
from tests.learning.probe_worlds import ContinuousChoice, CueWorld, DiscreteChoice, PlanWorld
from tests.training.learners import DISCRETE, make_learner, weights

TASK = "tests.helpers.worlds:counter"
TABLES = ("train.csv", "episodes.csv", "eval.csv")
SMALL = ["--agent.features", "16", "--agent.random-steps", "30", "--agent.batch-size", "4"]
SHORT = ["--agent-steps", "80", "--log-every", "20", "--evaluation.every", "40", "--evaluation.episodes", "2"]
KEEP = ["--keep.replay", "always"]  # of a run that is made longer
# The size of a replay follows the length of a run, and a run of 40 steps should draw what one of 80 draws.
PLACES = ["--replay.capacity", "100", "--evaluation.environments", "1", "--env.image-size", "36", *KEEP]
OPTIONS = [*SMALL, *SHORT, *PLACES, "--no-workers"]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(methods, "_registered", {})
    ogspr.register_method(METHOD)


class DQNPupil(Pupil):
    def configuration(self, lesson):
        return DQNConfig(
            discount=lesson.world.discount, features=32, target_rate=0.05, epsilon_steps=500, random_steps=100
        )

    def values(self, state, action):
        network = self.agent.method.online
        with torch.no_grad():
            values = network.of_images(torch.from_numpy(self.observations[state])[None])
        return [float((values * self.vector(action)).sum())]


@pytest.mark.parametrize("world", [CueWorld, PlanWorld])
def test_it_learns_known_values_and_acts_by_them(world):
    pupil = DQNPupil(Lesson(world, DiscreteChoice, updates=600, tolerance=0.15))
    pupil.learn_from_random_steps(600)
    wrong = [estimate for estimate in pupil.estimates() if not estimate.error <= 0.15]
    assert not wrong
    assert_acts_well(pupil)


def test_it_learns_from_its_own_steps():
    pupil = DQNPupil(Lesson(CueWorld, DiscreteChoice, updates=600, tolerance=0.15))
    rewards = pupil.learn_from_own_steps(600)
    assert np.mean(rewards[-40:]) > 0.8
    assert_acts_well(pupil)


def test_its_loss_by_hand():
    """Two windows; the second one ends: Q(s, a) = 1 against 0.5 + 0.9 * 4, and against 2."""

    class Table:
        def __init__(self, *values):
            self.rows = [torch.tensor(value) for value in values]

        def of_window(self, _window, step, _shift):
            return self.rows[step]

    online = Table([[1.0, 0.0], [0.0, 1.0]], [[3.0, 2.0], [5.0, 6.0]])
    target = Table([], [[4.0, 9.0], [7.0, 8.0]])
    window = Window(
        starts=torch.zeros(2),
        frames=torch.zeros(0),
        rows=torch.zeros(2, 2),
        actions=torch.eye(2)[:, None],
        rewards=torch.tensor([[0.5], [2.0]]),
        alive=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        first=torch.zeros(2, 2),
        priority=torch.ones(2),
    )
    loss, mean = q_loss(online, target, window, UpdateNoise(None, None), discount=0.9)
    errors = [0.5 + 0.9 * 4.0 - 1.0, 2.0 - 1.0]
    assert loss.item() == pytest.approx(np.mean([abs(error) - 0.5 for error in errors]))
    assert mean.item() == 1.0


def test_a_skipped_update_moves_nothing_not_even_the_target():
    learner = make_learner(spec=DISCRETE, config=DQNConfig(features=16, batch_size=4, random_steps=10))
    learner.update(11)
    learner.replay.numbers[:, -2] = float("nan")  # rewards
    before = {name: tensor.clone() for name, tensor in learner.agent.state_dict()["tensors"].items()}
    learner.update(12)
    after = learner.agent.state_dict()["tensors"]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not {name for name in moved if name.startswith(("online", "target", "q_optimiser"))}
    assert learner.agent.failed_updates == 1


def test_compiled_it_learns_what_it_learns_eagerly():
    from ogspr.training.options import Execution

    config = DQNConfig(features=16, batch_size=4, random_steps=10)
    learners = [
        make_learner(spec=DISCRETE, config=config, execution=Execution(mode, "fp32"))
        for mode in ("eager", "compiled")
    ]
    for step in range(3):
        for learner in learners:
            learner.update(11 + step)
    eager, compiled = (weights(learner) for learner in learners)
    assert eager
    for name in eager:
        assert torch.allclose(eager[name], compiled[name], atol=1e-5), name


def test_continuous_actions_are_refused_in_one_line():
    with pytest.raises(UserError, match="DQN needs discrete actions"):
        make_learner(config=DQNConfig())
    with pytest.raises(UserError, match="DQN needs discrete actions"):
        DQNPupil(Lesson(CueWorld, ContinuousChoice, updates=0, tolerance=0.0))


def run(*arguments, cwd):
    script = [sys.executable, "-c", "from ogspr.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_the_command_line_it_trains_resumes_exactly_plays_and_is_loaded(tmp_path):
    method = ["--method", "examples.dqn:METHOD"]
    train = ["train", TASK, *method, "--preset", "dqn", *OPTIONS]
    run(*train, "--out", tmp_path / "whole", cwd=ROOT)
    first = [*train, "--out", tmp_path / "halves"]
    run(*replace_option(first, "--agent-steps", "40"), cwd=ROOT)
    run(*first, cwd=ROOT)
    whole, halves = tmp_path / "whole" / "seed-0", tmp_path / "halves" / "seed-0"
    # One that stops at step 40 has evaluated there, as the whole one has.
    for table in TABLES:
        assert (whole / table).read_bytes() == (halves / table).read_bytes(), table
    assert "q_loss" in (whole / "train.csv").read_text()
    said = run("eval", whole, *method, "--task", TASK, "--episodes", "2", "--no-workers", cwd=ROOT)
    assert "mean        score     55.0" in said
    run("export", whole, tmp_path / "dqn.safetensors", *method, cwd=ROOT)
    agent = ogspr.load(tmp_path / "dqn.safetensors")
    assert agent.act(np.zeros(agent.spec.observation_shape, np.uint8)) in (0, 1, 2)


def replace_option(arguments, option, value):
    place = arguments.index(option) + 1
    return [*arguments[:place], value, *arguments[place + 1 :]]


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(UserError, match="already"):
        ogspr.register_method(replace(METHOD, name="mrq"))
    with pytest.raises(UserError, match="already"):
        ogspr.register_method(replace(METHOD, name="another", presets=("ogspr",)))
    ogspr.register_method(METHOD)  # the same one again, as a notebook does


TINY = {
    "agent": {"features": 16, "random_steps": 30, "batch_size": 4},
    "agent_steps": 40,
    "evaluation": {"every": 40, "episodes": 2, "environments": 1},
    "env": {"image_size": 36},
    "workers": False,
    "quiet": True,
}


@pytest.mark.parametrize("method", [METHOD, "examples.dqn:METHOD"], ids=["itself", "by name"])
def test_from_python_it_trains_and_is_loaded(method, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "_registered", {})
    (run,) = ogspr.train(TASK, method=method, out=tmp_path, **TINY)
    assert (run.folder / "train.csv").read_text().startswith("agent_steps")
    assert run.load("last").act(np.zeros((4, 36, 36), np.uint8)) in (0, 1, 2)
    monkeypatch.setattr(methods, "_registered", {})
    with pytest.raises(UserError, match=r"needs the method 'dqn'.*in Python method="):
        ogspr.load(run.folder)
    assert ogspr.load(run.folder, policy="last", method=method).origin["agent_steps"] == 40


def test_a_method_that_is_not_there_is_told_in_pythons_words(tmp_path):
    with pytest.raises(UserError, match=r"^method examples\.dqn:METHOT|unknown method in examples\.dqn"):
        ogspr.train(TASK, method="examples.dqn:METHOT", out=tmp_path, **TINY)
