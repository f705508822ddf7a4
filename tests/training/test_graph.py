"""How graphs are captured, with stand-ins for CUDA; that it works is shown on a GPU (test_gpu.py)."""

import contextlib

import pytest
import torch

from ogspr.agents.protocol import Procedure
from ogspr.device import CPU
from ogspr.training.graph import CapturedStep, GraphAccelerator, make_accelerator
from ogspr.training.options import Execution


class Stream:
    """Counts how many there are."""

    made = 0

    def __init__(self, _device):
        Stream.made += 1

    def wait_stream(self, _other):
        pass


class Current(Stream):
    """Whichever it is, it was there before."""

    def __init__(self):
        pass


class Graph:
    def __init__(self, done):
        self._done = done

    def replay(self):
        self._done.append("replay")


@pytest.fixture
def done(monkeypatch):
    """What was asked of CUDA, in its order."""
    asked = []

    @contextlib.contextmanager
    def capture(_graph, **_options):
        asked.append("begin capture")
        yield
        asked.append("end capture")

    monkeypatch.setattr(Stream, "made", 0)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_device: Current())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(asked))
    monkeypatch.setattr(torch.cuda, "graph", capture)
    clear = torch._C, "_cuda_clearCublasWorkspaces", lambda: asked.append("forget workspaces")
    monkeypatch.setattr(*clear, raising=False)  # torch without CUDA does not have it
    return asked


def test_a_graph_takes_its_workspaces_while_it_is_captured_and_keeps_them(done):
    step = CapturedStep(Procedure(lambda: done.append("run")))
    step()
    rehearsals = done.index("forget workspaces")
    assert done[:rehearsals] == ["run"] * rehearsals
    assert done[rehearsals:] == [
        "forget workspaces",
        "begin capture",
        "run",
        "end capture",
        "forget workspaces",
        "replay",
    ]


def test_branches_keep_their_streams(done):
    accelerator = GraphAccelerator(torch.device("cuda"), Execution("graph", "fp32"))
    branches = {"here": lambda: 1, "there": lambda: 2, "elsewhere": lambda: 3}
    for _ in range(3):
        assert accelerator.branches(branches) == {"here": 1, "there": 2, "elsewhere": 3}
    assert Stream.made == 2  # the first branch needs none
    assert done == []


def test_a_graph_that_got_ready_is_captured_and_has_changed_nothing(done):
    number = torch.zeros(())

    def add():
        number.add_(1.0)

    step = CapturedStep(Procedure(add, lambda: [number]))
    step.get_ready()
    captured = number.item()  # the stand-in runs what a real capture only writes down
    assert done.count("begin capture") == 1 and "replay" not in done
    assert captured == 1.0
    step.get_ready()
    step()
    assert done.count("begin capture") == 1 and done.count("replay") == 1
    assert number.item() == captured


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_step_that_got_ready_has_run_once_and_changed_nothing(mode):
    number, calls = torch.zeros(()), []

    def add():
        calls.append(1)
        number.add_(1.0)

    step = make_accelerator(Execution(mode), CPU).step(Procedure(add, lambda: [number]))
    step.get_ready()
    step.get_ready()
    assert (len(calls), number.item()) == (1, 0.0)
    step()
    assert (len(calls), number.item()) == (2, 1.0)
