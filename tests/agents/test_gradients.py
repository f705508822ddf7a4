"""Which loss reaches which parameters, what the open settings change, failed updates, and saved states."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from ogspr.agents.ogspr import Sizes, preset, preset_names
from ogspr.errors import UserError
from ogspr.types import ContinuousActions, EnvSpec
from tests.agents.scene import (
    EQUAL,
    KINDS,
    WEIGHTS,
    filled_replay,
    make_agent,
    make_spec,
    scene,
    scramble,
    settings_for,
    small_config,
)
from tests.agents.states import differing, played, snapshot, through_a_file

SYMBOLS = {
    "value_network.core.encoder": "f",
    "value_network.core.adapter1": "u1",
    "value_network.core.state_action": "g",
    "value_network.core.long_term": "Q",
    "value_network.heads.observation": "Dec",
    "value_network.heads.short_term_value": "q",
    "value_network.heads.self_prediction": "u2",
    "policy": "pi",
}
# The parts of each variant that have parameters (only what a variant uses is built).
PARTS = {
    "ogspr": {"f", "u1", "g", "Q", "Dec", "q", "u2", "pi"},
    "ogspr-op": {"f", "u1", "g", "Q", "q", "u2", "pi"},
    "ogspr-sp": {"f", "u1", "g", "Q", "Dec", "q", "pi"},
    "ogspr-svp": {"f", "u1", "g", "Q", "Dec", "u2", "pi"},
    "shared-adapter": {"f", "u1", "g", "Q", "Dec", "q", "pi"},
    "no-adapter": {"f", "g", "Q", "Dec", "q", "pi"},
    "adapter2-only": {"f", "g", "Q", "Dec", "q", "u2", "pi"},
    "as-written": {"f", "u1", "g", "Q", "Dec", "q", "u2", "pi"},
    "anonmethod": {"f", "g", "Q", "Dec", "q", "pi"},
}
REACH = {
    "long_term_loss": {"f", "u1", "g", "Q"},
    "ObservationPrediction.loss": {"f", "g", "Dec"},
    "ShortTermValue.loss": {"f", "g", "q"},
    "SelfPrediction.loss": {"f", "u1", "g", "u2"},
    "actor_loss": {"pi"},
}
# The paper's text has Adapter 1 below these two as well.
REACH_AS_WRITTEN = REACH | {
    "ObservationPrediction.loss": {"f", "u1", "g", "Dec"},
    "ShortTermValue.loss": {"f", "u1", "g", "q"},
}
TASK_OF = {
    "ObservationPrediction.loss": "observation",
    "ShortTermValue.loss": "short_term_value",
    "SelfPrediction.loss": "self_prediction",
}

every_variant = pytest.mark.parametrize("name", preset_names())
every_kind = pytest.mark.parametrize("kind", KINDS)


def parameters(agent):
    """Everything that learns, by name."""
    modules = {"value_network": agent.value_network, "policy": agent.policy}
    return {f"{part}.{name}": p for part, module in modules.items() for name, p in module.named_parameters()}


def symbol(name):
    (found,) = (s for prefix, s in SYMBOLS.items() if name.startswith(f"{prefix}."))
    return found


def pieces(named):
    """Tensors by name, those of the pair of values one by one."""
    for name, tensor in named:
        if "long_term" in name:
            yield from ((f"{name}[{j}]", None if tensor is None else tensor[j]) for j in range(2))
        else:
            yield name, tensor


def reached_parameters(agent, replay):
    """By loss: the names of the parameters that one update's loss gives a gradient that is not zero."""
    learned, reached = parameters(agent), {}

    def watch(name):
        def take_gradients(result, *_):
            loss = result[0] if isinstance(result, tuple) else result
            found = torch.autograd.grad(loss, learned.values(), retain_graph=True, allow_unused=True)
            named = pieces(zip(learned, found, strict=True))
            reached[name] = {piece for piece, g in named if g is not None and g.any()}
            return result

        return take_gradients

    agent._update._accelerator.interventions |= {name: watch(name) for name in REACH}
    agent.update(replay)
    return reached


# --- where gradients go -----------------------------------------------------------------------------


@every_kind
@every_variant
def test_each_loss_reaches_its_own_modules_and_all_of_each(name, kind):
    # Large errors give a value's bias a slope of 1 or -1 each: an odd number of them is never zero.
    agent, replay = scene(kind, name, batch_size=15)
    targets = snapshot(agent, "target_core", "target_policy")
    reached = reached_parameters(agent, replay)
    learned = {name for name, _ in pieces(parameters(agent).items())}
    assert {symbol(parameter) for parameter in learned} == PARTS[name]
    tasks = {task.name for task in agent.config.tasks}
    losses = {loss for loss, task in TASK_OF.items() if task in tasks}
    assert reached.keys() == {"long_term_loss", "actor_loss"} | losses
    reach = REACH_AS_WRITTEN if name == "as-written" else REACH
    for loss, found in reached.items():
        assert found == {parameter for parameter in learned if symbol(parameter) in reach[loss]}, loss
    assert set().union(*reached.values()) == learned  # no dead parameters
    assert not differing(targets, snapshot(agent, "target_core", "target_policy"))
    assert not any(p.requires_grad for m in (agent.target_core, agent.target_policy) for p in m.parameters())


@every_variant
def test_no_two_saved_tensors_share_memory(name):
    agent = make_agent(small_config("continuous", name), make_spec("continuous"))
    tensors = agent.state_dict()["tensors"].values()
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


def test_the_shared_adapter_learns_from_both_of_its_uses():
    """Its gradient is that of its use as u1 and that of its use as u2, together."""
    agent, replay = scene("continuous", "shared-adapter")
    (task,) = (t for t in agent.config.tasks if t.name == "self_prediction")
    adapter, found = agent.value_network.core.adapter1, {}

    def take_gradients(loss, head, state_action, seen):
        cut = seen._replace(sequence_h=seen.sequence_h.detach())
        uses = {"both": (head, seen), "first": (copy.deepcopy(adapter), seen), "second": (head, cut)}
        for use, (adapter2, evidence) in uses.items():
            value = task.loss()(adapter2, state_action, evidence)
            (found[use],) = torch.autograd.grad(value, adapter.weight, retain_graph=True)
        return loss

    agent._update._accelerator.interventions["SelfPrediction.loss"] = take_gradients
    agent.update(replay)
    assert found["first"].abs().max() > 1e-3
    assert found["second"].abs().max() > 1e-3
    torch.testing.assert_close(found["both"], found["first"] + found["second"], rtol=1e-4, atol=1e-5)


@every_kind
def test_targets_become_copies_after_every_period_and_only_then(kind):
    agent, replay = scene(kind, target_period=3)  # believes that it has made one update
    before = snapshot(agent, "target_core", "target_policy")
    for _ in range(2):  # the second and the third
        agent.update(replay)
        assert not differing(before, snapshot(agent, "target_core", "target_policy"))
    online = {
        name.replace("value_network.core", "target_core").replace("policy", "target_policy", 1): tensor
        for name, tensor in snapshot(agent, "value_network", "policy").items()
        if not name.startswith("value_network.heads")
    }
    agent.update(replay)
    assert not differing(online, snapshot(agent, "target_core", "target_policy"))


# --- the presets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ogspr", 5_387_708),
        ("as-written", 5_387_708),
        ("anonmethod", 4_862_396),
        ("no-adapter", 4_862_396),
        ("ogspr-op", 4_695_833),
    ],
)
def test_parameter_counts_at_cheetah_run(name, count):
    """The paper's 5.4 M and 4.9 M; without the decoder's 691 875, 4.696 M."""
    spec = EnvSpec("cheetah-run", (3, 84, 84), 3, ContinuousActions(6), 2, 500)
    agent = make_agent(replace(preset(name), batch_size=2), spec)
    assert agent.parameter_count == count


@every_variant
def test_weights_begin_orthogonal(name):
    """Every layer of an agent: gain 1 in linear layers, sqrt 2 in convolutions; biases at zero."""
    agent = make_agent(small_config("continuous", name), make_spec("continuous"))
    for parameter_name, parameter in parameters(agent).items():
        if parameter_name.endswith("bias"):
            assert not parameter.any(), parameter_name
            continue
        pair = "long_term" in parameter_name
        gain = 1.0 if parameter.ndim == 2 or pair else math.sqrt(2.0)
        for weight in parameter.detach() if pair else [parameter.detach()]:
            values = torch.linalg.svdvals(weight.flatten(1))
            torch.testing.assert_close(
                values, torch.full_like(values, gain), rtol=1e-4, atol=1e-4, msg=parameter_name
            )


@pytest.mark.parametrize(
    ("suite", "kind", "random_steps", "updates", "noise"),
    [("dmc", "continuous", 10_000, 1, 0.1), ("atari100k", "discrete", 2_000, 2, 0.2)],
)
@every_variant
def test_presets_have_the_numbers_of_the_papers_table(name, suite, kind, random_steps, updates, noise):
    config = preset(name, suite)
    assert {task.name: task.weight for task in config.tasks} == settings_for(kind, name).weights
    assert (config.random_steps, config.updates_per_step) == (random_steps, updates)
    assert config.exploration_noise == noise
    shared = (config.n_step, config.discount, config.batch_size, config.target_period)
    assert shared == (3, 0.99, 256, 250)
    assert (config.learning_rate, config.weight_decay, config.clip_norm) == (3e-4, 1e-4, 20.0)
    assert (config.target_noise, config.target_noise_limit) == (0.2, 0.3)
    assert config.priority_exponent == settings_for(kind, name).priority_exponent
    assert config.minimum_priority == 1.0
    assert config.sampled_evaluation == (suite == "atari100k")
    assert (config.gumbel_temperature, config.pre_activation_weight, config.shift_pad) == (10.0, 1e-5, 4)
    assert config.sizes == Sizes(32, 512, 512, 512, 580, 512, 512, 128, (64, 64, 32))
    horizons = [task.horizon for task in config.tasks if task.name == "self_prediction"]
    assert horizons == ([5] if "self_prediction" in settings_for(kind, name).weights else [])


@pytest.mark.parametrize(("suite", "random_steps", "updates"), [("dmc", 10_000, 1), ("atari100k", 2_000, 2)])
def test_updates_begin_after_the_random_steps(suite, random_steps, updates):
    agent = make_agent(replace(preset("ogspr", suite), sizes=EQUAL, batch_size=2), make_spec("continuous"))
    assert [agent.updates_due(random_steps + i) for i in (-1, 0, 1, 2)] == [0, 0, updates, updates]


# --- numbers that are not finite --------------------------------------------------------------------

LEARNED = ("value_network", "policy", "target_core", "target_policy", "value_optimiser", "policy_optimiser")


def spoil_rewards(agent, replay):  # noqa: ARG001
    replay.replay.numbers[:, -2] = math.nan


def spoil_policy(agent, replay):  # noqa: ARG001
    """A pre-activation whose square overflows: only the policy's loss is infinite."""
    with torch.no_grad():
        agent.policy.layers[-1].bias.fill_(1e30)


def without_power_iteration(tensors):
    """The decoder's power iteration goes on with each look at its weight; it is no parameter."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith((".left", ".right"))}


@pytest.mark.parametrize(
    ("spoil", "infinite"), [(spoil_rewards, "value_loss"), (spoil_policy, "policy_loss")]
)
@every_kind
def test_an_update_with_a_number_that_is_not_finite_changes_nothing(kind, spoil, infinite):
    agent, replay = scene(kind)
    agent.update(replay)
    spoil(agent, replay)
    before = without_power_iteration(snapshot(agent, *LEARNED))
    priority, largest = replay.replay.priority.clone(), replay.replay.largest_priority.clone()
    for count in (1, 2):
        agent.update(replay)
        assert agent.failures_in_a_row == count
    assert not differing(before, without_power_iteration(snapshot(agent, *LEARNED)))
    assert torch.equal(replay.replay.priority, priority)
    assert torch.equal(replay.replay.largest_priority, largest)
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (2, 2)
    assert failure.starts == {
        "value": replay.windows[0].starts.tolist(),
        "sequence": replay.windows[1].starts.tolist(),
    }
    assert {
        "value_loss",
        "policy_loss",
        *(f"{task}_loss" for task in WEIGHTS[kind]),
    } <= failure.numbers.keys()
    assert not math.isfinite(failure.numbers[infinite])
    assert math.isfinite(failure.numbers["observation_loss"])
    assert infinite in str(failure)


def updated_losses(agent, replay):
    """Two losses of one update, straight from their functions."""
    agent.update(replay)
    results = agent._update._accelerator.results
    return {"value_loss": results["long_term_loss"][0].item(), "policy_loss": results["actor_loss"].item()}


def test_a_good_update_ends_a_row_of_failures_and_alone_counts_in_the_means():
    agent, replay = scene("continuous")
    rewards = replay.replay.numbers[:, -2].clone()
    spoil_rewards(agent, replay)
    agent.update(replay)
    assert agent.failures_in_a_row == 1
    replay.replay.numbers[:, -2] = rewards
    losses = updated_losses(agent, replay)
    assert agent.failures_in_a_row == 0
    metrics = agent.metrics()
    assert metrics["failed_updates"] == 1
    assert agent.last_failure().total == 1
    assert {name: metrics[name] for name in losses} == pytest.approx(losses)
    assert math.isnan(agent.metrics()["value_loss"])  # nothing since the last call


def test_metrics_are_means_over_updates():
    agent, replay = scene("continuous")
    seen = [updated_losses(agent, replay)["value_loss"] for _ in range(3)]
    assert len(set(seen)) == 3
    assert agent.metrics()["value_loss"] == pytest.approx(sum(seen) / 3)


# --- saved states -----------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("name", ["ogspr", "shared-adapter", "anonmethod"])
def test_an_agent_goes_on_from_a_saved_state_to_the_bit(name, kind):
    spec, config = make_spec(kind), small_config(kind, name, target_period=3, batch_size=8)
    first, second = make_agent(config, spec, seed=0), make_agent(config, spec, seed=5)
    scramble(second)
    replay = filled_replay(first, spec)
    played(first, spec, 2, replay)
    assert differing(snapshot(first, "policy"), snapshot(second, "policy"))
    second.load_state_dict(through_a_file(first.state_dict()))
    other_replay = copy.deepcopy(replay)
    np.testing.assert_array_equal(played(first, spec, 3, replay), played(second, spec, 3, other_replay))
    assert not differing(snapshot(first), snapshot(second))
    assert torch.equal(replay.priority, other_replay.priority)
    assert first.updates == second.updates == 5
    assert first.metrics() == second.metrics()


def rename(tensors):
    tensors["policy.stranger"] = tensors.pop(next(name for name in tensors if name.startswith("policy.")))


def lose(tensors):
    tensors.pop(next(name for name in tensors if name.startswith("value_optimiser.second.")))


def reshape(tensors):
    name = list(tensors)[-1]
    tensors[name] = torch.zeros(*tensors[name].shape, 2)


@pytest.mark.parametrize("spoil", [rename, lose, reshape])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil):
    spec, config = make_spec("continuous"), small_config("continuous", batch_size=4)
    agent, other = make_agent(config, spec, seed=0), make_agent(config, spec, seed=1)
    scramble(other)
    state = copy.deepcopy(other.state_dict())
    spoil(state["tensors"])
    before, generator = snapshot(agent), agent.state_dict()["generator"]
    with pytest.raises(ValueError, match="does not fit"):
        agent.load_state_dict(state)
    assert not differing(before, snapshot(agent))
    assert agent.updates == 0
    assert torch.equal(generator, agent.state_dict()["generator"])


def test_the_state_of_another_variant_is_refused():
    spec = make_spec("continuous")
    agent = make_agent(small_config("continuous", batch_size=4), spec)
    other = make_agent(small_config("continuous", "anonmethod", batch_size=4), spec)
    with pytest.raises(ValueError, match=r"missing .*heads\.self_prediction"):
        agent.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batch_size": 0}, "batch size must be at least 1"),
        ({"n_step": 0}, "n step must be at least 1"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changes, complaint):
    with pytest.raises(UserError, match=complaint):
        replace(preset("ogspr"), **changes)
