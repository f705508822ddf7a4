import csv
from dataclasses import replace

import pytest
import torch

from benchmarks import flops
from benchmarks.commands import Update
from benchmarks.flops import Operations, floating_point_operations, operations_a_second
from benchmarks.learners import Memory, fill, held_bytes
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.types import Draw
from tests.benchmarks.reports import measured
from tests.training.learners import CONTINUOUS, make_learner

QUICK = {"batch_sizes": (2,), "capacities": (40,), "updates": 1, "rounds": 1, "learners": (1, 2)}


@pytest.fixture
def small_product(monkeypatch):
    """Whose speed bounds are taken from: the usual one takes half a minute in bf16 on a CPU that lacks it."""
    monkeypatch.setitem(flops._PRODUCT_SIZE, "cpu", 128)


def run(out=None, **options):
    return measured(Update(**(QUICK | options)), out)


@pytest.mark.usefixtures("small_product")
def test_table_and_csv_hold_what_was_measured(tmp_path):
    path = tmp_path / "update.csv"
    results, text = run(path, preset="small", modes=("eager",), precisions=("fp32", "bf16"))
    rows = list(csv.DictReader(path.open()))
    assert [(row["mode"], row["precision"], row["learners"]) for row in rows] == [
        ("eager", "fp32", "1"),
        ("eager", "bf16", "1"),
        ("eager", "bf16", "2"),
    ]
    for row, result in zip(rows, results, strict=True):
        assert float(row["milliseconds"]) == pytest.approx(result.milliseconds, rel=1e-5)
        assert row["hardware"]
    assert results[0].ratio == 1.0
    assert results[2].ratio == pytest.approx(2 * results[0].milliseconds / results[2].milliseconds)
    assert "optimise" in text
    assert "replay: 40 steps" in text


@pytest.mark.usefixtures("small_product")
def test_batch_and_replay_sizes_vary_one_at_a_time(tmp_path):
    path = tmp_path / "update.csv"
    sizes = {"batch_sizes": (2, 3), "capacities": (40, 50)}
    results, _ = run(path, preset="small", precisions=("fp32", "bf16"), **sizes)
    rows = list(csv.DictReader(path.open()))
    varied = [(row["precision"], row["learners"], row["batch_size"], row["capacity"]) for row in rows]
    assert varied == [
        ("fp32", "1", "2", "40"),
        ("bf16", "1", "2", "40"),
        ("bf16", "2", "2", "40"),
        ("bf16", "1", "3", "40"),
        ("bf16", "1", "2", "50"),
    ]
    assert results[3].ratio == pytest.approx(1.5 * results[0].milliseconds / results[3].milliseconds)
    assert results[3].operations == pytest.approx(1.5 * results[1].operations, rel=0.1)
    assert results[2].bound == pytest.approx(2 * results[1].bound)
    assert {float(row["bound"]) > 0 for row in rows} == {True}
    assert int(rows[4]["replay_bytes"]) == pytest.approx(1.25 * int(rows[0]["replay_bytes"]))


@pytest.mark.parametrize(("preset", "learned"), [("mrq", 4_156_394), ("drqv2", 7_276_628)])
def test_every_method_is_measured(preset, learned):
    """Part of what learns has a target copy."""
    (result,), _ = run(preset=preset, learners=(1,))
    assert 4 * learned < result.memory.networks_bytes < 8 * learned
    assert result.memory.optimisers_bytes == pytest.approx(2 * 4 * learned, rel=0.01)  # two moments of each


@pytest.mark.parametrize("across_episodes", [False, True])
def test_windows_end_with_the_newest_step(across_episodes):
    learner = make_learner(spec=replace(CONTINUOUS, frame_stack=1))
    fill(learner, seed=0)
    replay, horizon = learner.replay, 5
    draw = Draw(1000, horizon, across_episodes=across_episodes)
    (window,) = replay.peek([(draw, torch.linspace(0, 0.999, 1000, dtype=torch.float64))])
    assert (window.starts.min(), window.starts.max()) == (0, replay.shape.capacity - 1 - horizon)


def test_operations_by_hand():
    a, weight = torch.zeros(3, 5), torch.zeros(5, 7, requires_grad=True)
    assert floating_point_operations(lambda: a @ weight) == Operations(0, 2 * 3 * 5 * 7)
    there_and_back = floating_point_operations(lambda: (a @ weight).sum().backward())
    assert there_and_back == Operations(0, 2 * (2 * 3 * 5 * 7))
    image, kernel = torch.zeros(2, 3, 8, 8), torch.zeros(4, 3, 3, 3)
    convolve = torch.nn.functional.conv2d
    of_pictures = floating_point_operations(lambda: convolve(image, kernel))
    assert of_pictures == Operations(2 * (2 * 4 * 6 * 6) * (3 * 3 * 3), 0)


@pytest.mark.parametrize(
    ("precision", "seconds"), [("fp32", 30 / 2), ("tf32", 30 / 4), ("bf16", 20 / 8 + 10 / 4)]
)
def test_each_kind_of_operation_is_bound_by_its_own_precision(precision, seconds):
    speed = {"fp32": 2.0, "tf32": 4.0, "bf16": 8.0}.__getitem__
    assert Operations(convolutions=20, products=10).seconds(precision, speed) == seconds


def test_operations_a_second_by_hand(monkeypatch):
    seconds = iter([0.5, 0.25, *[0.5] * 8])  # the best counts: others were disturbed
    monkeypatch.setattr("benchmarks.flops.seconds", lambda *_: next(seconds))
    assert operations_a_second(CPU, "fp32") == 2 * 1024**3 / 0.25


def test_memory_that_is_nobody_elses_is_for_working():
    (result,), _ = run(learners=(1,))
    memory = result.memory
    assert memory.working_bytes == 0  # not measured on a CPU
    frames = 40 * 3 * 84 * 84
    assert frames < memory.replay_bytes < frames + 40 * 100
    assert Memory.of([], held=7, peak=9) == Memory(0, 0, 0, working_bytes=7, momentary_bytes=2)


def test_a_graph_holds_its_pool_and_others_what_tensors_live_in():
    segments = [
        {"segment_pool_id": (0, 0), "total_size": 1000, "allocated_size": 32},  # the rest waits for anybody
        {"segment_pool_id": (0, 1), "total_size": 400, "allocated_size": 0},  # a graph between two replays
        {"segment_pool_id": (2, 0), "total_size": 20, "allocated_size": 20},
    ]
    assert held_bytes(segments) == 32 + 400 + 20


@pytest.mark.gpu
def test_a_graph_works_with_the_same_memory_whatever_was_measured_before():
    results, _ = run(modes=("eager", "graph"), precisions=("bf16",), learners=(1, 1), batch_sizes=(64,))
    first, again = (result.memory.working_bytes for result in results[1:])
    # In one process, libraries choose their kernels, and the memory for them, once.
    assert first == pytest.approx(again, rel=0.2)
    assert first > 64 * 32 * 41 * 41 * 2  # what the first layer makes of a batch


def test_phases_add_up_to_a_whole_update(monkeypatch):
    """The differences between updates cut off later and later; one learner alone is cut into phases."""
    ends = iter([10.0, 1.0, 3.0, 6.0, 10.0, 20.0])  # whole, then cut after each phase; then two learners
    monkeypatch.setattr("benchmarks.update.update_rounds", lambda *_, **__: [next(ends)])
    results, _ = run(modes=("eager",), precisions=("fp32",))
    assert results[0].phases == {"sample": 1.0, "forward": 2.0, "backward": 3.0, "optimise": 4.0}
    assert sum(results[0].phases.values()) == results[0].milliseconds
    assert results[1].phases == {}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"updates": 0}, "updates must be at least 1"),
        ({"learners": (0,)}, "must be at least 1"),
        ({"batch_sizes": (2, 0)}, "must be at least 1"),
        ({"preset": "ogsrp"}, "did you mean ogspr"),
        ({"suite": "dmcc"}, "unknown suite"),
        ({"capacities": (5,)}, "at least 9 steps"),
    ],
)
def test_mistakes_are_told(options, complaint):
    with pytest.raises(UserError, match=complaint):
        run(**options)
