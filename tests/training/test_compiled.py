"""Compiled functions equal plain ones; whole updates are compared on a GPU, where compiling pays."""

import shutil

import pytest
import torch
import torch.nn.functional as F

from ogspr.agents.learning import adamw_step
from ogspr.device import CPU
from ogspr.nets import MLP
from ogspr.replay.buffer import Stored, draw_window
from ogspr.training.graph import make_accelerator
from ogspr.training.options import Execution
from ogspr.types import Draw
from tests.training.learners import make_learner

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


def compiled(function, precision="fp32"):
    return make_accelerator(Execution("compiled", precision), CPU).function(function)


@pytest.mark.parametrize(
    "draw", [Draw(64, 3), Draw(64, 3, by_priority=False), Draw(64, 3, across_episodes=True)], ids=str
)
def test_drawing(draw):
    replay = make_learner().replay
    stored = Stored(replay.frames, replay.numbers, replay.age, replay.reach, replay.priority, replay.count)
    uniforms = torch.rand(64, dtype=torch.float64)
    plain, fast = (drawn(stored, draw, 3, uniforms) for drawn in (draw_window, compiled(draw_window)))
    for expected, found in zip(plain, fast, strict=True):
        assert torch.equal(expected, found)


@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_a_step_of_adamw_in_place(skip):
    def vectors():
        generator = torch.Generator().manual_seed(0)
        parameters, gradient, first = (torch.randn(50, generator=generator) for _ in range(3))
        return [parameters, gradient, first, first.square(), torch.tensor(7.0)]

    results = []
    for step in (adamw_step, compiled(adamw_step)):
        state = vectors()
        step(*state, torch.tensor(1e-3), 1e-4, (0.9, 0.999), 1e-8, torch.tensor(2.0), torch.tensor(skip))
        results.append(state)
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(plain, fast, rtol=1e-6, atol=1e-7)
    assert torch.equal(results[1][0], vectors()[0]) == bool(skip)


def test_gradients_of_dense_layers_are_not_rounded_to_bf16():
    """Unless told otherwise, torch.compile computes gradients under the autocast around a function."""
    torch.manual_seed(0)
    network = MLP((64, 64, 1), F.elu)
    x = torch.randn(32, 64)

    def loss(x):
        return network(x).square().mean()

    exact, found = (
        torch.autograd.grad(each(x), list(network.parameters())) for each in (loss, compiled(loss, "bf16"))
    )
    torch.testing.assert_close(found, exact)


@pytest.mark.skipif(
    "deterministic" not in torch._inductor.list_options(), reason="this torch has no such option"
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_only_a_deterministic_run_forbids_races_between_kernels(monkeypatch, deterministic):
    given = {}
    monkeypatch.setattr(torch, "compile", lambda function, **options: given.update(options) or function)
    make_accelerator(Execution("compiled", "fp32", deterministic), CPU).function(draw_window)
    assert given["options"].get("deterministic", False) == deterministic
