import errno
import json
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ogspr.errors import UserError
from ogspr.records.tree import save_tree
from ogspr.replay import Replay
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator
from ogspr.train.learner import Diverged, LearnerSettings, make_learners
from ogspr.train.state_file import load_state, save_state
from ogspr.types import TimeStep
from tests.train.learners import (
    CONTINUOUS,
    DISCRETE,
    OTHER_METHODS,
    distance,
    make_learner,
    small_config,
    weights,
)

CPU = torch.device("cpu")
PLAIN = Execution("eager", "fp32")


def settings(capacity: int = 100) -> LearnerSettings:
    return LearnerSettings(small_config(), CONTINUOUS, capacity, CPU, PLAIN)


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
def test_a_learner_acts_stores_and_updates(spec):
    learner = make_learner(spec=spec)
    before = weights(learner)
    picture = np.zeros(spec.observation_shape, np.uint8)
    for explore in (True, False):
        for steps in (0, 10**6):
            spec.actions.checked(learner.act(picture, agent_steps=steps, explore=explore))
    learner.update()
    assert distance(weights(learner), before) > 0


def test_many_observations_are_answered_at_once():
    learner = make_learner(spec=DISCRETE)
    pictures = np.random.default_rng(0).integers(0, 256, (7, *DISCRETE.observation_shape), np.uint8)
    together = learner.act(pictures, agent_steps=10**6, explore=False)
    alone = [learner.act(picture, agent_steps=10**6, explore=False) for picture in pictures]
    assert together.tolist() == [int(action) for action in alone]


def test_evaluation_is_without_noise_and_exploration_is_not():
    learner = make_learner()
    picture = np.zeros(CONTINUOUS.observation_shape, np.uint8)
    plain = [learner.act(picture, agent_steps=10**6, explore=False) for _ in range(2)]
    noisy = [learner.act(picture, agent_steps=10**6, explore=True) for _ in range(200)]
    assert (plain[0] == plain[1]).all()
    inside = np.abs(plain[0]) < 0.5  # where the noise is not clipped
    assert np.std(noisy, axis=0)[inside] == pytest.approx(0.1, rel=0.3)
    assert np.mean(noisy, axis=0)[inside] == pytest.approx(plain[0][inside], abs=0.05)


def test_the_first_steps_are_uniformly_random():
    learner = make_learner(config=small_config(random_steps=1000))
    picture = np.zeros(CONTINUOUS.observation_shape, np.uint8)
    early = np.array([learner.act(picture, agent_steps=999, explore=True) for _ in range(500)])
    assert early.mean() == pytest.approx(0.0, abs=0.1)
    assert early.std() == pytest.approx(1 / np.sqrt(3), abs=0.05)
    assert [learner.agent.updates_due(steps) for steps in (1, 1000, 1001)] == [0, 0, 1]


def test_evaluating_does_not_change_how_it_explores():
    quiet, busy = make_learner(), make_learner()
    picture = np.zeros(CONTINUOUS.observation_shape, np.uint8)
    busy.act(picture, agent_steps=10**6, explore=False)
    actions = [learner.act(picture, agent_steps=10**6, explore=True) for learner in (quiet, busy)]
    assert (actions[0] == actions[1]).all()


def test_acting_does_not_change_what_is_learned():
    quiet, busy = make_learner(), make_learner()
    for _ in range(3):
        quiet.update()
        busy.act(np.zeros(CONTINUOUS.observation_shape, np.uint8), agent_steps=10**6, explore=True)
        busy.update()
    assert distance(weights(quiet), weights(busy)) == 0.0


def test_without_a_gpu_planned_updates_do_not_keep_an_action_waiting():
    asked, acting = make_learner(), make_learner()
    picture = np.zeros(CONTINUOUS.observation_shape, np.uint8)
    asked.ask(picture, agent_steps=10**6, explore=True)
    asked.plan_updates(10**6 + 1)
    assert asked.agent.updates == 0
    assert (asked.action() == acting.act(picture, agent_steps=10**6, explore=True)).all()
    for _ in range(2):  # once is enough
        asked.make_updates()
        assert asked.agent.updates == 1
    acting.update()
    assert distance(weights(asked), weights(acting)) == 0.0


def test_seeds_decide():
    same, again, other = (make_learner(seed=seed) for seed in (0, 0, 1))
    for learner in (same, again, other):
        learner.update()
    assert distance(weights(same), weights(again)) == 0.0
    assert distance(weights(same), weights(other)) > 0.0


def test_learners_side_by_side_equal_each_alone():
    alone = [make_learner(seed=seed) for seed in range(2)]
    together = [make_learner(seed=seed) for seed in range(2)]
    for learner in alone:
        for _ in range(5):
            learner.update()
    for _ in range(5):
        for learner in together:
            learner.update()
    for one, other in zip(alone, together, strict=True):
        assert distance(weights(one), weights(other)) == 0.0


def poison(learner):
    learner.replay.numbers[:, -2] = float("nan")


def test_failed_updates_are_reported_and_too_many_stop_the_run_with_a_saved_state(tmp_path):
    told = []
    learner = make_learner(config=small_config(tolerated_failures=3), folder=tmp_path, report=told.append)
    learner.update()
    good = weights(learner)
    poison(learner)
    learner.update()
    learner.update()
    with pytest.raises(Diverged, match=r"3 in a row.*value_loss nan.*diverged\.safetensors"):
        learner.update()
    assert [f"{count} in a row" in line for count, line in enumerate(told, start=1)] == [True] * 3
    report = json.loads((tmp_path / "failed_update.json").read_text())
    assert str(tmp_path / "failed_update.json") in told[0]
    assert [len(report["starts"][batch]) for batch in ("value", "sequence")] == [16, 16]
    assert np.isnan(report["numbers"]["value_loss"])
    successor = make_learner(seed=5, report=told.append)
    successor.load_state_dict(load_state(tmp_path / "diverged.safetensors"))
    assert distance(weights(successor), good) == 0.0
    successor.update()
    assert len(told) == 3


def test_the_message_of_a_failure_is_short(tmp_path):
    told = []
    learner = make_learner(config=small_config(tolerated_failures=1), folder=tmp_path, report=told.append)
    poison(learner)
    with pytest.raises(Diverged) as error:
        learner.update()
    assert "\n" not in str(error.value)
    assert len(told[0]) < 600


def test_a_saved_state_goes_on_to_the_bit(tmp_path):
    one, other = make_learner(), make_learner()
    for _ in range(3):
        one.update()
    save_state(tmp_path / "state.safetensors", one.state_dict())
    other.load_state_dict(load_state(tmp_path / "state.safetensors"))
    for name in ("priority", "largest_priority"):
        getattr(other.replay, name).copy_(getattr(one.replay, name))
    for learner in (one, other):
        for _ in range(3):
            learner.update()
    assert distance(weights(one), weights(other)) == 0.0
    assert one.metrics() == other.metrics()


def test_files_that_are_no_agent_state_are_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(UserError, match="cannot read"):
        load_state(path)
    path.write_bytes(b"garbage")
    with pytest.raises(UserError, match="cannot read"):
        load_state(path)
    save_state(path, make_learner().agent.state_dict())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot read"):
        load_state(path)
    save_tree(path, {}, "something else")
    with pytest.raises(UserError, match="not of the kind"):
        load_state(path)


def test_a_state_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    state = make_learner().agent.state_dict()
    save_state(path, state)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(UserError, match="cannot write"):
        save_state(path, state)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_memory_is_announced_before_it_is_taken(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr("ogspr.train.learner.Replay", lambda *_: lines.append("taken") or Replay(*_))
    learners = make_learners(settings(), [1, 2], [tmp_path] * 2, announce=lines.append)
    size = learners[0].replay.shape.bytes_a_step
    assert lines == [f"replay: 2 x 100 steps of {size} bytes = 0.00 GB beside the networks", "taken", "taken"]


def test_a_replay_that_cannot_fit_is_refused_with_the_numbers(tmp_path):
    lines = []
    with pytest.raises(UserError, match=r"need \d+\.\d+ GB, free: .* store at most \d+ steps"):
        make_learners(settings(10**10), [1], [tmp_path], announce=lines.append)
    assert lines == []


@pytest.mark.parametrize(("mode", "precision"), [("graph", "fp32"), ("eager", "tf32")])
def test_what_needs_a_gpu_is_refused_without_one(mode, precision):
    with pytest.raises(UserError, match="needs a CUDA device"):
        make_accelerator(Execution(mode, precision), CPU)


class Products(TorchDispatchMode):
    """Notes in which precision what is computed."""

    def __init__(self):
        super().__init__()
        self.dense, self.convolutions = set(), set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = {each.dtype for each in args if isinstance(each, torch.Tensor)}
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            self.dense |= tensors
        elif "convolution" in name:
            self.convolutions |= tensors
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(
    "config", [small_config(), *OTHER_METHODS.values()], ids=lambda config: type(config).__name__
)
def test_in_bf16_only_convolutions_are_rounded(config):
    """In acting and in learning, forwards and backwards."""
    learner = make_learner(execution=Execution("eager", "bf16"), config=config)
    with Products() as products:
        learner.update()
        learner.act(np.zeros(CONTINUOUS.observation_shape, np.uint8), agent_steps=10**6, explore=False)
    assert products.dense == {torch.float32}
    assert products.convolutions == {torch.bfloat16}


def test_bf16_on_a_cpu_learns_about_the_same():
    plain, rough = make_learner(), make_learner(execution=Execution("eager", "bf16"))
    start = weights(plain)
    for learner in (plain, rough):
        for _ in range(4):
            learner.update()
    way = distance(weights(plain), start)
    assert 0 < distance(weights(plain), weights(rough)) / way < 0.5


def test_an_update_without_a_window_to_draw_is_refused_at_any_time():
    learner = make_learner()
    learner.update()
    step = TimeStep(np.zeros(CONTINUOUS.observation_shape, np.uint8), 0.0, 0.0, False, False, 1, np.zeros(0))
    for _ in range(learner.replay.shape.capacity):  # episodes of no step push everything else out
        learner.begin(step)
    with pytest.raises(UserError, match="no window of"):
        learner.update()


def test_an_agent_learns_from_one_replay_only():
    one, other = make_learner(), make_learner()
    one.update()
    with pytest.raises(ValueError, match="one replay"):
        one.agent.update(other.replay)


def test_the_command_line_does_not_wait_for_torch():
    """The options of commands are declared without it."""
    import subprocess

    code = "import ogspr.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
