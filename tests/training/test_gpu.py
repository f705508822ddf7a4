"""The same learner run in different ways on a GPU. Needs one: `pytest -m gpu`."""

import functools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from ogspr.agents import learning
from ogspr.agents.ogspr.method import OGSPR
from ogspr.ops import images as image_ops
from ogspr.replay import Replay
from ogspr.training.graph import GraphAccelerator, set_matrix_precision
from ogspr.training.learner import Learner
from ogspr.training.options import Execution, Mode, Precision
from ogspr.types import Draw
from tests.training.learners import (
    CONTINUOUS,
    DISCRETE,
    LATE,
    OTHER_METHODS,
    acted,
    distance,
    make_learner,
    metrics,
    set_learning_rate,
    small_config,
    store_episodes,
    weights,
)

pytestmark = pytest.mark.gpu
UPDATES = 8  # targets are copied before the first and the fifth


@pytest.fixture(autouse=True)
def settings_of_the_process():
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before


def learner_on_gpu(mode: Mode = "graph", precision: Precision = "bf16", **options: Any) -> Learner:
    """Its kernels are chosen by rule, not by a race, and sum in a fixed order.

    Its steps have arrived: it stores them on a stream of its own, and tests look at them from another one.
    """
    execution = Execution(mode, precision, deterministic=True)
    learner = make_learner(execution=execution, device="cuda", **options)
    torch.cuda.synchronize()
    return learner


def updated(learner: Learner, updates: int = UPDATES) -> dict[str, Tensor]:
    for _ in range(updates):
        learner.update(LATE)
    torch.cuda.synchronize()
    return weights(learner)


def set_rewards(learner: Learner, rewards: float | Tensor) -> None:
    """Of all steps in replay, after what the learner is doing and before what it does next."""
    with learner.stream():
        learner.replay.numbers[:, -2].copy_(torch.as_tensor(rewards))


MODES: tuple[Mode, ...] = ("eager", "compiled", "graph")
CASES: dict[str, dict[str, Any]] = {
    "continuous": {"spec": CONTINUOUS},
    "discrete": {"spec": DISCRETE},
    "mrq": {"config": OTHER_METHODS["mrq"]},
    "mrq-discrete": {"config": OTHER_METHODS["mrq"], "spec": DISCRETE},
    "drqv2": {"config": OTHER_METHODS["drqv2"]},
}


@pytest.fixture(params=[None, *OTHER_METHODS], ids=["ogspr", *OTHER_METHODS])
def method(request):
    """Settings of each method in turn, as options of a learner."""
    return {"config": OTHER_METHODS[request.param]} if request.param else {}


@functools.cache
def way_of(mode: Mode, precision: Precision, case: str) -> dict[str, Tensor]:
    """How far the weights have come after some updates: end minus start."""
    learner = learner_on_gpu(mode, precision, **CASES[case])
    start = weights(learner)
    end = updated(learner)
    return {name: end[name] - start[name] for name in start}


def error(way: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Of two ways, as a share of their length.

    AdamW divides a gradient by its own size, so rounding errors of tiny gradients show in full: hence a share
    of the way and not of the weights.
    """
    return distance(way, right) / distance(right, {name: torch.zeros(()) for name in right})


@pytest.mark.parametrize("case", CASES)
def test_eager_equals_compiled_equals_graph_in_fp32(case):
    eager, compiled, graph = (way_of(mode, "fp32", case) for mode in MODES)
    print("fp32", case, "compiled", error(compiled, eager), "graph to compiled", error(graph, compiled))
    assert error(compiled, eager) < 1e-3
    assert error(graph, compiled) < 1e-4  # the same kernels, in branches that sum in another order


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_compiled_and_graph_round_no_worse_than_eager(precision, case):
    """Every mode rounds in other places, so each is compared with what rounding does to eager updates."""
    right = way_of("eager", "fp32", case)
    errors = {mode: error(way_of(mode, precision, case), right) for mode in MODES}
    print(precision, case, errors)
    assert errors["eager"] < 0.5  # else rounding would hide everything
    # Errors of one size, not the same ones: of few updates, how large they come out is chance.
    assert errors["compiled"] < 2.0 * errors["eager"]
    assert errors["graph"] < 2.0 * errors["eager"]


def test_gpu_and_cpu_learn_the_same_in_fp32(monkeypatch):
    """Same weights and, by chance put equal, the same batch: the losses of the first update agree."""
    on_gpu, on_cpu = learner_on_gpu("eager", "fp32"), make_learner()
    on_gpu.load_state_dict(on_cpu.state_dict() | {"generator": on_gpu.state_dict()["generator"]})
    draw = learning.raw_noise
    drawn: dict[str, tuple[Tensor, Tensor]] = {}

    def drawn_once(wanted, generator):
        """What the first of them has drawn, on the device of whoever asks."""
        drawn.setdefault("numbers", draw(wanted, generator))
        return tuple(part.to(generator.device) for part in drawn["numbers"])

    with monkeypatch.context() as changed:
        changed.setattr(learning, "raw_noise", drawn_once)
        for learner in (on_cpu, on_gpu):
            learner.update(LATE)
    gpu, cpu = metrics(on_gpu), metrics(on_cpu)
    for name in cpu:
        if not name.startswith("encoder_gradient_"):  # of a batch that neither's chance has put equal
            assert gpu[name] == pytest.approx(cpu[name], rel=1e-3, abs=1e-4), name


def test_a_captured_update_uses_a_loaded_state(method):
    source, other = learner_on_gpu(seed=1, **method), learner_on_gpu(seed=1, **method)
    updated(source)
    state, replay = source.state_dict(), source.replay_state_dict()
    goal = updated(source, 3)
    updated(other, 6)
    other.load_state_dict(state)
    other.load_replay_state_dict(replay)
    assert distance(updated(other, 3), goal) == 0.0


def test_a_captured_update_uses_a_new_learning_rate():
    learner = learner_on_gpu()
    before = updated(learner)
    set_learning_rate(learner, 0.0)
    assert distance(updated(learner, 2), before) == 0.0
    set_learning_rate(learner, 1e-3)
    assert distance(updated(learner, 1), before) > 0.0


def test_a_captured_update_sees_target_copies():
    config = small_config()
    learner = learner_on_gpu(config=config)
    updated(learner)
    assert learner.agent.updates % config.target_period == 0
    method = learner.agent.method
    assert isinstance(method, OGSPR)
    online, target = method.networks.value.core, method.networks.target_core
    before = [parameter.cpu() for parameter in online.parameters()]
    updated(learner, 1)
    for copied, was in zip(target.parameters(), before, strict=True):
        assert torch.equal(copied.cpu(), was)


def test_a_captured_update_sees_new_steps():
    """Only steps that came after the capture have the reward 1000, and the values learn of them."""
    learner = learner_on_gpu()
    updated(learner)
    metrics(learner)
    set_rewards(learner, 0.0)
    store_episodes(learner, seed=9, reward=1000.0)
    updated(learner, 4)
    assert metrics(learner)["target_mean"] > 100.0


@pytest.mark.parametrize("place", ["device", "pinned"])
def test_phases_can_be_captured(place, method):
    learner = learner_on_gpu(place=place, **method)
    with learner.stream():
        for step in learner.agent.phases(learner.replay).values():
            for _ in range(5):
                step()
    torch.cuda.synchronize()
    assert metrics(learner)["failed_updates"] == 0.0


@pytest.mark.parametrize("variant", ["as-written", "ogspr-op", "ogspr-sp", "shared-adapter", "anonmethod"])
def test_other_variants_run_in_a_graph(variant):
    learner = learner_on_gpu(config=small_config(variant))
    start = weights(learner)
    assert distance(updated(learner), start) > 0.0


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_an_update_never_waits_for_the_gpu(mode, method):
    learner = learner_on_gpu(mode, **method)
    updated(learner, 5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            learner.update(LATE)
        store_episodes(learner, seed=3, episodes=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("place", ["device", "pinned"])
def test_a_learner_that_is_looked_at_learns_as_one_that_is_not(place):
    """Gradients by loss are measured between two replays of a graph: two learners, and one of each alone."""
    alone = updated(learner_on_gpu(place=place))
    watched, other = (learner_on_gpu(place=place) for _ in range(2))
    for _ in range(UPDATES):
        for learner in (watched, other):
            learner.update(LATE)
            numbers = metrics(learner)
        assert 0.0 < numbers["encoder_gradient_combined"] < float("inf")
    torch.cuda.synchronize()
    for learner in (watched, other):
        assert distance(weights(learner), alone) == 0.0


def assert_side_by_side_as_alone(method: Mapping[str, Any], learners: int, updates: int) -> None:
    alone = [updated(learner_on_gpu(seed=seed, **method), updates) for seed in range(learners)]
    together = [learner_on_gpu(seed=seed, **method) for seed in range(learners)]
    for _ in range(updates):
        for learner in together:
            learner.update(LATE)
    torch.cuda.synchronize()
    for learner, expected in zip(together, alone, strict=True):
        assert distance(weights(learner), expected) == 0.0


def test_learners_side_by_side_equal_each_alone(method):
    assert_side_by_side_as_alone(method, learners=5, updates=UPDATES)


def test_graphs_captured_on_the_same_streams_do_not_disturb_each_other(method, monkeypatch):
    """As they may be, when torch's 32 streams are used up: products must not add up where another's do."""
    shared = functools.cache(lambda _name: torch.cuda.Stream())
    monkeypatch.setattr(GraphAccelerator, "_side_stream", lambda _accelerator, name: shared(name))
    assert_side_by_side_as_alone(method, learners=3, updates=40)


def test_a_failed_update_leaves_everything_as_it_was_in_a_graph():
    learner = learner_on_gpu(config=small_config(tolerated_failures=10**6))
    updated(learner)
    rewards, priorities = learner.replay.numbers[:, -2].cpu(), learner.replay.priority.cpu()
    before = weights(learner)
    set_rewards(learner, float("nan"))
    assert distance(updated(learner, 3), before) == 0.0
    assert torch.equal(learner.replay.priority.cpu(), priorities)
    assert learner.agent.last_failure().in_a_row == 3
    set_rewards(learner, rewards)
    assert distance(updated(learner, 1), before) > 0.0
    assert learner.agent.last_failure().in_a_row == 0


def wait_for_prefetching(replay: Replay) -> None:
    assert replay._prefetcher is not None
    replay._prefetcher.join()


def test_pinned_frames_give_the_windows_of_the_call_before():
    pinned, on_device = learner_on_gpu(place="pinned").replay, learner_on_gpu().replay
    uniforms = [torch.rand(2, 16, dtype=torch.float64, device="cuda") for _ in range(4)]
    wanted = [[(Draw(16, 3), pair[0]), (Draw(16, 5), pair[1])] for pair in uniforms]
    expected = [[window._asdict() for window in on_device.draw(request)] for request in wanted]
    for call, request in enumerate(wanted):
        for window, right in zip(pinned.draw(request), expected[max(0, call - 1)], strict=True):
            for name in ("starts", "actions", "rewards", "alive", "first", "priority"):
                assert torch.equal(getattr(window, name), right[name]), name
            assert torch.equal(window.frames[window.rows], right["frames"][right["rows"]])
        wait_for_prefetching(pinned)


def test_pinned_frames_are_fetched_ahead_for_each_kind_of_update():
    """A method that draws windows of several sizes gets, of each, those of its own call before."""
    pinned, on_device = learner_on_gpu(place="pinned").replay, learner_on_gpu().replay
    horizons = (3, 3, 5, 5, 3, 5, 5, 3)
    requests = [(h, torch.rand(16, dtype=torch.float64, device="cuda")) for h in horizons]
    before: dict[int, tuple[Draw, Tensor]] = {}
    for horizon, uniforms in requests:
        wanted = (Draw(16, horizon), uniforms)
        (window,) = pinned.draw([wanted])
        (right,) = on_device.draw([before.get(horizon, wanted)])
        before[horizon] = wanted
        assert torch.equal(window.starts, right.starts)
        assert torch.equal(window.frames[window.rows], right.frames[right.rows])
        wait_for_prefetching(pinned)


def test_a_learner_with_pinned_frames_learns_in_a_graph(method):
    learner = learner_on_gpu(place="pinned", **method)
    start = weights(learner)
    assert distance(updated(learner), start) > 0.0
    assert metrics(learner)["failed_updates"] == 0.0


def test_replay_on_the_gpu_holds_what_replay_on_the_cpu_holds():
    gpu, cpu = learner_on_gpu().replay, make_learner().replay
    used = slice(0, gpu.written)
    for name in ("frames", "numbers", "age", "reach", "priority"):
        assert torch.equal(getattr(gpu, name)[used].cpu(), getattr(cpu, name)[used]), name


@pytest.mark.parametrize(
    ("stack", "channels", "height", "width"), [(3, 3, 84, 84), (4, 1, 84, 84), (2, 3, 50, 67)]
)
def test_the_first_layers_kernel_computes_the_first_layer(stack, channels, height, width):
    """Relative error of the layer and its gradients, against pictures and convolutions in float32."""
    set_matrix_precision("fp32")
    torch.manual_seed(0)
    frames = torch.randint(0, 256, (50, channels, height, width), dtype=torch.uint8, device="cuda")
    slots, offsets = (
        torch.randint(0, 50, (20, stack), device="cuda"),
        torch.randint(0, 9, (20, 2), device="cuda"),
    )
    weight = (0.2 * torch.randn(32, stack * channels, 3, 3, device="cuda")).requires_grad_()
    bias = (0.1 * torch.randn(32, device="cuda")).requires_grad_()
    inputs = (frames, slots, offsets, 4, (-0.5, 0.5), weight, bias)
    expected = image_ops.first_layer_of_stacks(*inputs)
    gradient = torch.randn_like(expected)
    with torch.autocast("cuda", torch.bfloat16):
        found = image_ops.first_layer_of_stacks(*inputs)
    pairs = [
        (found, expected),
        *zip(
            torch.autograd.grad(found, (weight, bias), gradient.bfloat16()),
            torch.autograd.grad(expected, (weight, bias), gradient),
            strict=True,
        ),
    ]
    for ours, right in pairs:
        assert float((ours.float() - right).detach().norm() / right.detach().norm()) < 5e-3


def test_an_update_behind_a_question_changes_nothing_about_the_answer(method):
    one, other = (learner_on_gpu(seed=3, **method) for _ in range(2))
    picture = torch.randint(0, 256, one.spec.observation_shape, dtype=torch.uint8).numpy()
    for agent_steps in range(LATE, LATE + 6):
        expected = acted(one, picture, agent_steps)
        for _ in range(one.agent.updates_due(agent_steps + 1)):
            one.update(agent_steps + 1)
        with other.stream():
            answer = other.agent.act_async(picture, first=False, agent_steps=agent_steps)
        for _ in range(other.agent.updates_due(agent_steps + 1)):
            other.update(agent_steps + 1)
        assert (answer() == expected).all()
    assert one.agent.updates == other.agent.updates > 0


def test_act_in_a_graph_equals_act_without():
    graph, eager = learner_on_gpu(precision="fp32"), learner_on_gpu("eager", "fp32")
    picture = torch.randint(0, 256, graph.spec.observation_shape, dtype=torch.uint8).numpy()
    for explore in (True, False):
        for _ in range(6):
            actions = [acted(learner, picture, explore=explore) for learner in (graph, eager)]
            assert actions[0] == pytest.approx(actions[1], abs=1e-4)
