"""Where gradients go, when what is updated, failed updates, saved states, and what is left after learning."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from ogspr.agents.methods import METHODS, method_of, method_with_preset
from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.agents.mrq.policy import MRQPolicy
from ogspr.agents.mrq.representation import MRQRepresentation
from ogspr.agents.protocol import Procedure
from ogspr.errors import UserError
from ogspr.ops.shift import scaled_pixels
from ogspr.train.graph import Execution, _undone, make_accelerator
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec
from tests.agents.mrq.scene import (
    Watched,
    make_agent,
    recording,
    scene,
    scramble,
    small_config,
    update_encoder,
)
from tests.agents.scene import CPU, KINDS, Recording, filled_replay, make_spec
from tests.agents.states import differing, played, snapshot, through_a_file, under

every_kind = pytest.mark.parametrize("kind", KINDS)
TINY = Sizes(2, 6, 4, 6, 6, 6, 6)
REPRESENTATION = ("core.encoder", "core.state_action", "model")
TARGETS = ("target_core", "target_policy")
LEARNED = ("core", "model", "policy", *TARGETS, "encoder_optimiser", "value_optimiser", "policy_optimiser")


def parameters(agent):
    """Everything that learns, by name."""
    nets = agent.networks
    modules = {"core": nets.core, "model": nets.model, "policy": nets.policy}
    return {f"{part}.{name}": p for part, module in modules.items() for name, p in module.named_parameters()}


# --- where gradients go -----------------------------------------------------------------------------


def reached(agent, run, function, losses_of):
    """Names of the parameters that each loss in a function's result gives a gradient that is not zero."""
    learned, found = parameters(agent), {}

    def take_gradients(result, *_):
        for name, loss in losses_of(result).items():
            gradients = torch.autograd.grad(loss, learned.values(), retain_graph=True, allow_unused=True)
            found[name] = {n for n, g in zip(learned, gradients, strict=True) if g is not None and g.any()}
        return result

    recording(agent).interventions[function] = take_gradients
    run(agent)
    return found


@every_kind
def test_each_loss_reaches_its_own_modules_and_all_of_each(kind):
    # Large errors give a value's bias a slope of 1 or -1 each: an odd number of them is never zero.
    agent, replay = scene(kind, batch_size=47)
    names = parameters(agent)
    representation = under(names, *REPRESENTATION)
    model = reached(agent, lambda a: update_encoder(a, replay), "model_losses", dict)
    assert model == dict.fromkeys(("dynamics", "reward", "done"), representation)
    value = reached(agent, lambda a: a.update(replay), "long_term_loss", lambda found: {"value": found[0]})
    assert value == {"value": under(names, "core.long_term")}
    policy = reached(agent, lambda a: a.update(replay), "actor_loss", lambda found: {"policy": found})
    assert policy == {"policy": under(names, "policy")}
    assert representation | value["value"] | policy["policy"] == names.keys()  # no dead parameters


@every_kind
def test_each_kind_of_update_changes_its_own_networks_only(kind):
    agent, replay = scene(kind)
    networks = ("core", "model", "policy", *TARGETS, "scales")
    before = snapshot(agent, *networks)
    update_encoder(agent, replay)
    between = snapshot(agent, *networks)
    assert differing(before, between) == under(before, *REPRESENTATION)
    agent.update(replay)
    assert differing(between, snapshot(agent, *networks)) == under(before, "core.long_term", "policy")


def test_the_encoder_leaves_priorities_alone():
    agent, replay = scene("continuous")
    before = replay.replay.priority.clone()
    update_encoder(agent, replay)
    assert torch.equal(replay.replay.priority, before)
    agent.update(replay)
    assert not torch.equal(replay.replay.priority, before)


def test_no_two_saved_tensors_share_memory():
    agent = make_agent(small_config(), make_spec("continuous"))
    tensors = agent.state_dict()["tensors"].values()
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


# --- the schedule -----------------------------------------------------------------------------------


def test_bursts_of_250_come_before_updates_0_250_and_500():
    procedures, calls = [], []

    class Counting(Recording):
        """Runs nothing, but remembers what it should have run."""

        def step(self, procedure):
            procedures.append(procedure)
            place = len(procedures) - 1
            return super().step(Procedure(lambda: calls.append(place)))

    spec = make_spec("continuous")
    agent = make_agent(small_config(target_period=250), spec, accelerator=Counting())
    replay = Watched(filled_replay(agent, spec))
    for _ in range(600):
        agent.update(replay)
    for procedure in procedures:  # what each of them is, its windows tell
        procedure.run()
    horizons = [replay.horizons[place] for place in calls]
    assert horizons == ([5] * 250 + [3] * 250) * 2 + [5] * 250 + [3] * 100


def test_optimisers_count_their_own_updates():
    agent, replay = scene("continuous", target_period=3)
    agent.updates = 0
    for _ in range(7):
        agent.update(replay)
    counts = {name.partition("_")[0]: float(t) for name, t in snapshot(agent).items() if ".steps." in name}
    assert counts == {"encoder": 9, "value": 7, "policy": 7}


def test_targets_become_copies_of_what_was_there_before_each_burst():
    agent, replay = scene("continuous", target_period=3)  # believes that it has made one update
    before = snapshot(agent, *TARGETS)
    for _ in range(2):  # the second and the third
        agent.update(replay)
        assert not differing(before, snapshot(agent, *TARGETS))
    online = {f"target_{name}": tensor for name, tensor in snapshot(agent, "core", "policy").items()}
    agent.update(replay)
    assert not differing(online, snapshot(agent, *TARGETS))
    assert agent.metrics()["encoder_loss"] > 0


def test_the_unit_of_values_changes_at_bursts_only_and_that_of_targets_follows():
    agent, replay = scene("continuous", target_period=2)  # believes that it has made one update
    seen = {"online": [], "target": []}
    for reward in (2.0, 3.0, 5.0, 7.0, 11.0):
        replay.replay.numbers[:, -2] = -reward
        agent.update(replay)
        for name, scales in seen.items():
            scales.append(float(snapshot(agent, "scales")[f"scales.{name}"]))
    assert seen["online"] == pytest.approx([1, 3, 3, 7, 7])
    assert seen["target"] == pytest.approx([1, 1, 1, 3, 3])


def test_the_loss_of_latent_states_is_against_the_encoder_of_before_the_burst():
    """A target that moved along would be another one at the second update of a burst."""
    agent, replay = scene("continuous", target_period=2, encoder_learning_rate=0.05)
    agent.updates = 2
    start, targets = snapshot(agent, "core.encoder"), []
    recording(agent).interventions["model_losses"] = lambda found, *_: (
        targets.append(snapshot(agent, "target_core.encoder")) or found
    )
    agent.update(replay)
    assert len(targets) == 2
    for target in targets:
        assert not differing(start, {name.removeprefix("target_"): t for name, t in target.items()})
    assert differing(start, snapshot(agent, "core.encoder")) == set(start)


@every_kind
def test_everything_that_an_update_changes_is_declared_so_that_it_can_be_rehearsed(kind):
    """What an accelerator rehearses and undoes leaves the agent and its replay as they were."""
    procedures = []

    class Collecting(Recording):
        def step(self, procedure):
            procedures.append(procedure)
            return super().step(procedure)

    spec = make_spec(kind)
    agent = make_agent(small_config(), spec, accelerator=Collecting())
    scramble(agent)
    replay = filled_replay(agent, spec)
    agent.rehearse(replay)
    phases = agent.phases(replay)
    assert len(procedures) == 2 + len(phases)
    before, chance = snapshot(agent), agent.state_dict()["generator"]
    priority, rewards = replay.priority.clone(), replay.numbers[:, -2].clone()
    for procedure in procedures:
        with _undone(procedure):
            procedure.run()
            replay.numbers[:, -2] = math.nan
            procedure.run()  # a failure is heard of, if it gets that far
        replay.numbers[:, -2] = rewards
        assert agent.failed_updates == 0
        assert not differing(before, snapshot(agent))
        assert torch.equal(agent.state_dict()["generator"], chance)
        assert torch.equal(replay.priority, priority)
    for name, phase in phases.items():
        phase()
        assert bool(differing(before, snapshot(agent))) == (name == "optimise")
    moved = differing(before, snapshot(agent))
    assert under(moved, "model")
    assert under(moved, "policy")


def test_updates_begin_after_the_random_steps():
    agent = make_agent(replace(MRQConfig(), sizes=TINY, batch_size=2), make_spec("continuous"))
    assert [agent.updates_due(10_000 + i) for i in (-1, 0, 1, 2)] == [0, 0, 1, 1]


def test_too_few_stored_steps_are_refused():
    agent, _ = scene("continuous")
    empty = Watched(filled_replay(agent, make_spec("continuous"), rounds=0))
    with pytest.raises(UserError, match="no window of 5 steps"):
        agent.update(empty)


def test_the_encoders_learning_rate_stays_in_proportion():
    agent, _ = scene("continuous")
    agent.set_learning_rate(6e-4)
    rates = [
        optimiser.learning_rate
        for optimiser in (agent._value._value_optimiser, agent._value._policy_optimiser)
    ]
    assert [float(rate) for rate in rates] == pytest.approx([6e-4, 6e-4])
    assert float(agent._encoder._optimiser.learning_rate) == pytest.approx(2e-4)


# --- configuration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "stack", "actions", "count"),
    [
        ((3, 84, 84), 3, ContinuousActions(6), 4_156_394),  # cheetah-run: the paper's 4.2 M
        ((1, 84, 84), 4, DiscreteActions(18), 4_164_182),
    ],
)
def test_parameter_counts(frame, stack, actions, count):
    spec = EnvSpec("sizes", frame, stack, actions, 2, 500)
    assert make_agent(MRQConfig(batch_size=2), spec).parameter_count == count


@pytest.mark.parametrize("task", ["dmc:walker-walk", "atari:Pong", "gym:CartPole-v1"])
def test_the_preset_has_the_numbers_of_the_papers_table(task):
    config = METHODS["mrq"].preset("mrq", task)
    assert (config.horizon, config.n_step, config.longest_horizon) == (5, 3, 5)
    assert (config.dynamics_weight, config.reward_weight, config.done_weight) == (1.0, 0.1, 0.1)
    assert (config.encoder_learning_rate, config.learning_rate, config.weight_decay) == (1e-4, 3e-4, 1e-4)
    assert (config.batch_size, config.target_period, config.discount) == (256, 250, 0.99)
    assert (config.target_noise, config.target_noise_limit, config.exploration_noise) == (0.2, 0.3, 0.2)
    assert (config.priority_exponent, config.minimum_priority, config.clip_norm) == (0.4, 1.0, 20.0)
    assert (config.gumbel_temperature, config.discrete_noise_scale) == (10.0, 0.5)
    assert (config.pre_activation_weight, config.shift_pad) == (1e-5, 4)
    assert (config.random_steps, config.updates_per_step) == (10_000, 1)
    assert (config.reward_bins, config.reward_limit) == (65, 10.0)
    assert config.sizes == Sizes(32, 512, 256, 512, 512, 512, 512)


def test_the_method_is_found_by_preset_and_by_configuration():
    assert method_with_preset("mrq") is method_of(MRQConfig()) is METHODS["mrq"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batch_size": 0}, "batch size must be at least 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"target_period": 0}, "target period must be at least 1"),
        ({"discount": 1.5}, "discount must be from 0 to 1"),
        ({"learning_rate": -1.0}, "learning rate must be at least 0"),
        ({"encoder_learning_rate": -1.0}, "encoder learning rate must be at least 0"),
        ({"updates_per_step": 0}, "updates per step must be at least 1"),
        ({"reward_bins": 64}, "reward bins must be odd"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changes, complaint):
    with pytest.raises(UserError, match=complaint):
        replace(MRQConfig(), **changes)


# --- numbers that are not finite --------------------------------------------------------------------


@every_kind
def test_an_update_with_a_number_that_is_not_finite_changes_nothing(kind):
    agent, replay = scene(kind)
    update_encoder(agent, replay)
    agent.update(replay)
    replay.replay.numbers[:, -2] = math.nan
    before, memory = snapshot(agent, *LEARNED), snapshot(agent, "encoder_memory", "features")
    priority, largest = replay.replay.priority.clone(), replay.replay.largest_priority.clone()
    agent.metrics()
    update_encoder(agent, replay)
    sequence = replay.windows[0].starts.tolist()
    assert agent.failed_updates == 1
    assert agent.last_failure().starts == {"sequence": sequence}
    update_encoder(agent, replay)
    agent.update(replay)
    assert agent.failed_updates == 3
    assert not differing(before, snapshot(agent, *LEARNED))
    assert not differing(memory, snapshot(agent, "encoder_memory", "features"))
    assert torch.equal(replay.replay.priority, priority)
    assert torch.equal(replay.replay.largest_priority, largest)
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (2, 3)
    assert failure.starts.keys() == {"sequence", "value"}
    assert failure.starts["value"] == replay.windows[0].starts.tolist()
    infinite = {name for name, number in failure.numbers.items() if not math.isfinite(number)}
    assert {"reward_loss", "encoder_loss", "value_loss"} <= infinite
    assert {"dynamics_loss", "done_loss", "policy_loss"}.isdisjoint(infinite)
    metrics = agent.metrics()
    assert math.isnan(metrics["value_loss"])  # none of them counts
    assert math.isnan(metrics["encoder_loss"])
    assert metrics["failed_updates"] == 3


def test_a_terminal_in_a_failed_update_was_not_seen():
    agent, replay = scene("continuous")
    rewards = replay.replay.numbers[:, -2].clone()
    replay.replay.numbers[:, -2] = math.nan
    update_encoder(agent, replay)
    assert replay.windows[0].alive.min() == 0
    assert float(snapshot(agent, "encoder_memory")["encoder_memory.terminal_seen"]) == 0
    replay.replay.numbers[:, -2] = rewards
    update_encoder(agent, replay)
    assert float(snapshot(agent, "encoder_memory")["encoder_memory.terminal_seen"]) == 1


def test_only_a_policy_that_fails_is_reported_as_such():
    """A pre-activation whose square overflows: the encoder goes on."""
    agent, replay = scene("continuous", target_period=2)
    agent.update(replay)
    with torch.no_grad():
        agent.networks.policy.layers[-1].bias.fill_(1e30)
    before = snapshot(agent, "core.encoder")
    agent.update(replay)
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (1, 1)
    assert not math.isfinite(failure.numbers["policy_loss"])
    assert "encoder_loss" not in failure.numbers
    assert differing(before, snapshot(agent, "core.encoder"))
    agent.forget_failures()
    assert agent.last_failure().in_a_row == 0


def test_metrics_are_means_over_updates_of_their_kind():
    agent, replay = scene("continuous", target_period=2)
    agent.updates = 2
    seen = {"model_losses": [], "long_term_loss": []}
    for name, values in seen.items():
        recording(agent).interventions[name] = lambda found, *_, values=values: values.append(found) or found
    for _ in range(3):
        agent.update(replay)
    assert (len(seen["model_losses"]), len(seen["long_term_loss"])) == (4, 3)
    metrics = agent.metrics()
    for name in ("dynamics", "reward", "done"):
        losses = [float(found[name].detach()) for found in seen["model_losses"]]
        assert metrics[f"{name}_loss"] == pytest.approx(np.mean(losses))
    losses = [float(found[0].detach()) for found in seen["long_term_loss"]]
    assert metrics["value_loss"] == pytest.approx(np.mean(losses))
    assert {"h_effective_rank", "z_dead_share", "q_mean", "encoder_gradient_norm"} <= metrics.keys()
    agent.update(replay)  # the end of the period: no burst before it
    assert math.isfinite(agent.metrics()["value_loss"])
    assert math.isnan(agent.metrics()["encoder_loss"])


# --- saved states -----------------------------------------------------------------------------------


@every_kind
def test_an_agent_goes_on_from_a_saved_state_to_the_bit(kind):
    spec, config = make_spec(kind), small_config(target_period=3, batch_size=8)
    first, second = make_agent(config, spec, seed=0), make_agent(config, spec, seed=5)
    scramble(second)
    replay = filled_replay(first, spec)
    played(first, spec, 2, replay)
    second.load_state_dict(through_a_file(first.state_dict()))
    other_replay = copy.deepcopy(replay)
    np.testing.assert_array_equal(played(first, spec, 5, replay), played(second, spec, 5, other_replay))
    assert not differing(snapshot(first), snapshot(second))
    assert torch.equal(replay.priority, other_replay.priority)
    assert first.updates == second.updates == 7
    assert first.metrics() == second.metrics()


def test_a_loaded_state_brings_its_failures_along():
    agent, replay = scene("continuous")
    replay.replay.numbers[:, -2] = math.nan
    update_encoder(agent, replay)
    agent.update(replay)
    other, _ = scene("continuous")
    other.load_state_dict(agent.state_dict())
    assert other.failed_updates == 2
    assert str(other.last_failure()) == str(agent.last_failure())


@pytest.mark.parametrize("lost", ["model.outputs.bias", "scales.online", "encoder_memory.terminal_seen"])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(lost):
    spec, config = make_spec("continuous"), small_config(batch_size=4)
    agent, other = make_agent(config, spec, seed=0), make_agent(config, spec, seed=1)
    state = copy.deepcopy(other.state_dict())
    del state["tensors"][lost]
    before, generator = snapshot(agent), agent.state_dict()["generator"]
    with pytest.raises(ValueError, match=f"does not fit: missing .*{lost}"):
        agent.load_state_dict(state)
    assert not differing(before, snapshot(agent))
    assert torch.equal(generator, agent.state_dict()["generator"])


# --- what is left after learning --------------------------------------------------------------------


@every_kind
def test_a_policy_acts_as_the_agent_does(kind):
    agent, _ = scene(kind)
    spec = make_spec(kind)
    policy = MRQPolicy(
        agent.config, spec, device=CPU, accelerator=make_accelerator(Execution("eager", "fp32"), CPU)
    )
    pictures = np.random.default_rng(0).integers(0, 256, (5, *spec.observation_shape), dtype=np.uint8)
    expected = agent.ask(pictures, agent_steps=10**6, explore=False)()
    assert not np.array_equal(policy.act(pictures, np.random.default_rng(0)), expected)
    policy.load_weights(agent.policy_weights())
    assert np.array_equal(policy.act(pictures, np.random.default_rng(0)), expected)
    assert {name.partition(".")[0] for name in agent.policy_weights()} == {"encoder", "policy"}


@every_kind
def test_a_representation_shows_what_the_agent_computes(kind):
    agent, _ = scene(kind)
    spec, rng = make_spec(kind), np.random.default_rng(0)
    seen = MRQRepresentation(agent.config, spec, agent.state_dict()["tensors"], device=CPU)
    pictures = rng.integers(0, 256, (5, *spec.observation_shape), dtype=np.uint8)
    actions = np.stack([spec.actions.sample(rng) for _ in range(5)])
    h, z = seen.encode(pictures, actions)
    core = agent.networks.core
    with torch.no_grad():
        expected = core.latent(scaled_pixels(torch.from_numpy(pictures), *agent.config.pixel_range))
        assert torch.equal(h, expected)
        assert torch.equal(z, core.state_action(h, torch.from_numpy(agent.action_vector(actions))))
    assert not z.requires_grad
