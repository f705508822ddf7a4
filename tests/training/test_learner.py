import errno
import json
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.records.tree import load_tree
from ogspr.replay import Replay
from ogspr.training.graph import make_accelerator
from ogspr.training.learner import Diverged, LearnerSettings, make_learners
from ogspr.training.options import Execution
from ogspr.training.state_file import as_tensors, save_state
from ogspr.types import TimeStep
from tests.training.learners import (
    CONTINUOUS,
    DISCRETE,
    OTHER_METHODS,
    acted,
    distance,
    make_learner,
    metrics,
    small_config,
    updated,
    weights,
)

PLAIN = Execution("eager", "fp32")


def load_state(path):
    return as_tensors(load_tree(path, "ogspr-agent-1"))


def settings(capacity: int = 100) -> LearnerSettings:
    return LearnerSettings(small_config(), CONTINUOUS, capacity, CPU, PLAIN)


IMAGE = np.zeros(CONTINUOUS.observation_shape, np.uint8)


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
def test_a_learner_acts_stores_and_updates(spec):
    learner = make_learner(spec=spec)
    before = weights(learner)
    image = np.zeros(spec.observation_shape, np.uint8)
    for explore in (True, False):
        for steps in (0, 10**6):
            spec.actions.checked(acted(learner, image, steps, explore))
    assert distance(updated(learner), before) > 0


def test_many_observations_are_answered_at_once():
    learner = make_learner(spec=DISCRETE)
    images = np.random.default_rng(0).integers(0, 256, (7, *DISCRETE.observation_shape), np.uint8)
    together = acted(learner, images, explore=False)
    alone = [acted(learner, image, explore=False) for image in images]
    assert together.tolist() == [int(action) for action in alone]


def test_evaluation_is_without_noise_and_exploration_is_not():
    learner = make_learner()
    plain = [acted(learner, IMAGE, explore=False) for _ in range(2)]
    noisy = [acted(learner, IMAGE) for _ in range(200)]
    assert (plain[0] == plain[1]).all()
    inside = np.abs(plain[0]) < 0.5  # where the noise is not clipped
    assert np.std(noisy, axis=0)[inside] == pytest.approx(0.1, rel=0.3)
    assert np.mean(noisy, axis=0)[inside] == pytest.approx(plain[0][inside], abs=0.05)


def test_the_first_steps_are_uniformly_random():
    learner = make_learner(config=small_config(random_steps=1000))
    early = np.array([acted(learner, IMAGE, 999) for _ in range(500)])
    assert early.mean() == pytest.approx(0.0, abs=0.1)
    assert early.std() == pytest.approx(1 / np.sqrt(3), abs=0.05)
    assert [learner.agent.updates_due(steps) for steps in (1, 1000, 1001)] == [0, 0, 1]


def test_evaluating_does_not_change_how_it_explores():
    quiet, busy = make_learner(), make_learner()
    acted(busy, IMAGE, explore=False)
    assert (acted(quiet, IMAGE) == acted(busy, IMAGE)).all()


def test_acting_does_not_change_what_is_learned():
    quiet, busy = make_learner(), make_learner()
    for _ in range(3):
        updated(quiet)
        acted(busy, IMAGE)
        updated(busy)
    assert distance(weights(quiet), weights(busy)) == 0.0


def test_seeds_decide():
    same, again, other = (updated(make_learner(seed=seed)) for seed in (0, 0, 1))
    assert distance(same, again) == 0.0
    assert distance(same, other) > 0.0


def test_learners_side_by_side_equal_each_alone():
    alone = [updated(make_learner(seed=seed), 5) for seed in range(2)]
    together = [make_learner(seed=seed) for seed in range(2)]
    for _ in range(5):
        for learner in together:
            updated(learner)
    for learner, expected in zip(together, alone, strict=True):
        assert distance(weights(learner), expected) == 0.0


def poison(learner):
    learner.replay.numbers[:, -2] = float("nan")


def test_failed_updates_are_reported_and_too_many_stop_the_run_with_a_saved_state(tmp_path):
    told = []
    learner = make_learner(config=small_config(tolerated_failures=3), folder=tmp_path, report=told.append)
    good = updated(learner)
    poison(learner)
    updated(learner, 2)
    with pytest.raises(Diverged, match=r"3 in a row.*value_loss nan.*diverged\.safetensors"):
        learner.update(10**6)
    assert [f"{count} in a row" in line for count, line in enumerate(told, start=1)] == [True] * 3
    report = json.loads((tmp_path / "failed_update.json").read_text())
    assert str(tmp_path / "failed_update.json") in told[0]
    assert [len(report["starts"][batch]) for batch in ("value", "sequence")] == [16, 16]
    assert np.isnan(report["numbers"]["value_loss"])
    successor = make_learner(seed=5, report=told.append)
    successor.load_state_dict(load_state(tmp_path / "diverged.safetensors"))
    assert distance(weights(successor), good) == 0.0
    successor.update(10**6)
    assert len(told) == 3


def test_a_learner_of_these_tests_leaves_nothing_in_the_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    learner = make_learner(report=told.append)
    poison(learner)
    updated(learner, 2)
    assert told
    assert not list(tmp_path.iterdir())


def test_the_message_of_a_failure_is_short(tmp_path):
    told = []
    learner = make_learner(config=small_config(tolerated_failures=1), folder=tmp_path, report=told.append)
    poison(learner)
    with pytest.raises(Diverged) as error:
        learner.update(10**6)
    assert "\n" not in str(error.value)
    assert len(told[0]) < 600


def test_a_saved_state_goes_on_to_the_bit(tmp_path):
    one, other = make_learner(), make_learner()
    updated(one, 3)
    save_state(tmp_path / "state.safetensors", one.state_dict())
    other.load_state_dict(load_state(tmp_path / "state.safetensors"))
    for name in ("priority", "largest_priority"):
        getattr(other.replay, name).copy_(getattr(one.replay, name))
    assert distance(updated(one, 3), updated(other, 3)) == 0.0
    assert metrics(one) == metrics(other)


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
    monkeypatch.setattr("ogspr.training.learner.Replay", lambda *_: lines.append("taken") or Replay(*_))
    learners = make_learners(settings(), [1, 2], [tmp_path] * 2, announce=lines.append)
    size = learners[0].replay.shape.bytes_a_step
    assert lines == [
        f"replay: 2 x 100 steps of {size} bytes = 0.00 GB next to the networks",
        "taken",
        "taken",
    ]


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


every_method = pytest.mark.parametrize(
    "config", [small_config(), *OTHER_METHODS.values()], ids=lambda config: type(config).__name__
)


@every_method
def test_in_bf16_only_convolutions_are_rounded(config):
    """In acting and in learning, forwards and backwards."""
    learner = make_learner(execution=Execution("eager", "bf16"), config=config)
    with Products() as products:
        updated(learner)
        acted(learner, IMAGE, explore=False)
    assert products.dense == {torch.float32}
    assert products.convolutions == {torch.bfloat16}


@every_method
def test_bf16_on_a_cpu_learns_about_the_same(config):
    """Also that no two parts of an update disagree about precision."""
    plain, rough = (
        make_learner(config=config, execution=Execution("eager", kind)) for kind in ("fp32", "bf16")
    )
    start, right, found = weights(plain), updated(plain, 4), updated(rough, 4)
    assert 0 < distance(found, right) / distance(right, start) < 0.5
    assert metrics(rough)["failed_updates"] == 0


def test_an_update_without_a_window_to_draw_is_refused_at_any_time():
    learner = make_learner()
    learner.update(10**6)
    step = TimeStep(np.zeros(CONTINUOUS.observation_shape, np.uint8), 0.0, 0.0, False, False, 1, np.zeros(0))
    for _ in range(learner.replay.shape.capacity):  # episodes of no step push everything else out
        learner.begin(step)
    with pytest.raises(UserError, match="no window of"):
        learner.update(10**6)


def test_the_command_line_does_not_wait_for_torch():
    """The options of commands are declared without it."""
    import subprocess

    code = "import ogspr.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
