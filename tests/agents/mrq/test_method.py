"""Where gradients go, when what is updated, sizes and settings, and what is learned to be seen."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.agent import make_representation
from ogspr.agents.methods import METHODS, method_of, method_with_preset
from ogspr.agents.mrq import MRQConfig, Sizes
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.ops.images import scaled_pixels
from ogspr.types import ContinuousActions, DiscreteActions, EnvSpec
from tests.agents.mrq.scene import parameters, scene
from tests.agents.scene import KINDS, LATE, images_of, make_agent, make_spec, pieces, reached
from tests.agents.states import differing, snapshot, under

every_kind = pytest.mark.parametrize("kind", KINDS)
TINY = Sizes(2, 6, 4, 6, 6, 6, 6)
REPRESENTATION = ("core.encoder", "core.state_action", "model")
TARGETS = ("target_core", "target_policy")


def update(subject):
    subject.agent.update(subject.replay, LATE)


# --- where gradients go -----------------------------------------------------------------------------


@every_kind
def test_each_loss_reaches_its_own_modules_and_all_of_each(kind):
    # Large errors give a value's bias a slope of 1 or -1 each: an odd number of them is never zero.
    subject = scene(kind, batch_size=47)
    names = pieces(parameters(subject)).keys()
    representation = under(names, *REPRESENTATION)
    model = reached(subject.look("encoder").found.terms, parameters(subject))
    assert model == dict.fromkeys(("dynamics", "reward", "done"), representation)
    found = reached(subject.look("value").found.terms, parameters(subject))
    assert found == {"value": under(names, "core.long_term"), "policy": under(names, "policy")}
    assert representation | found["value"] | found["policy"] == names  # no dead parameters


@every_kind
def test_each_kind_of_update_changes_its_own_networks_only(kind):
    subject = scene(kind)
    networks = ("core", "model", "policy", *TARGETS, "scales")
    before = snapshot(subject.agent, *networks)
    subject.learn("encoder")
    between = snapshot(subject.agent, *networks)
    assert differing(before, between) == under(before, *REPRESENTATION)
    subject.learn("value")
    after = snapshot(subject.agent, *networks)
    assert differing(between, after) == under(before, "core.long_term", "policy")


# --- the schedule -----------------------------------------------------------------------------------


def test_bursts_of_250_come_before_updates_0_250_and_500():
    subject = scene(target_period=250)
    method, replay = subject.agent.method, subject.replay
    kinds = [kind for updates in range(600) for kind in method.schedule(updates, LATE, replay)]
    assert kinds == (["encoder"] * 250 + ["value"] * 250) * 2 + ["encoder"] * 250 + ["value"] * 100


def test_optimisers_count_their_own_updates():
    subject = scene(target_period=3)
    subject.agent.updates = 0
    for _ in range(7):
        update(subject)
    tensors = snapshot(subject.agent)
    counts = {name.partition("_")[0]: float(t) for name, t in tensors.items() if ".steps." in name}
    assert counts == {"encoder": 9, "value": 7, "policy": 7}


def test_targets_become_copies_of_what_was_there_before_each_burst():
    subject = scene(target_period=3)  # believes that it has made one update
    agent = subject.agent
    before = snapshot(agent, *TARGETS)
    for _ in range(2):  # the second and the third
        update(subject)
        assert not differing(before, snapshot(agent, *TARGETS))
    online = {f"target_{name}": tensor for name, tensor in snapshot(agent, "core", "policy").items()}
    update(subject)
    assert not differing(online, snapshot(agent, *TARGETS))
    assert agent.metrics()["encoder_loss"] > 0


def test_the_unit_of_values_changes_at_bursts_only_and_that_of_targets_follows():
    subject = scene(target_period=2)  # believes that it has made one update
    seen = {"online": [], "target": []}
    for reward in (2.0, 3.0, 5.0, 7.0, 11.0):
        subject.replay.numbers[:, -2] = -reward
        update(subject)
        for name, scales in seen.items():
            scales.append(float(snapshot(subject.agent, "scales")[f"scales.{name}"]))
    assert seen["online"] == pytest.approx([1, 3, 3, 7, 7])
    assert seen["target"] == pytest.approx([1, 1, 1, 3, 3])
    assert subject.agent.metrics()["reward_scale"] == pytest.approx(7)


def test_the_loss_of_latent_states_is_against_the_encoder_of_before_the_burst():
    """A target that moved along would be another one at the second update of a burst."""
    subject = scene(target_period=2, encoder_learning_rate=0.05)
    start, made = snapshot(subject.agent, "core.encoder"), []
    for kind in subject.agent.method.schedule(2, LATE, subject.replay):
        target = snapshot(subject.agent, "target_core.encoder")
        assert not differing(start, {name.removeprefix("target_"): t for name, t in target.items()})
        subject.learn(kind)
        made.append(kind)
    assert made == ["encoder", "encoder", "value"]
    assert differing(start, snapshot(subject.agent, "core.encoder")) == set(start)


def test_updates_begin_after_the_random_steps():
    agent = make_agent(replace(MRQConfig(), sizes=TINY, batch_size=2), make_spec("continuous"))
    assert [agent.updates_due(10_000 + i) for i in (-1, 0, 1, 2)] == [0, 0, 1, 1]


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


def test_a_terminal_in_a_failed_update_was_not_seen():
    subject = scene()
    rewards = subject.replay.numbers[:, -2].clone()
    subject.spoil_rewards()
    assert subject.look("encoder").windows["sequence"].alive.min() == 0
    subject.learn("encoder")
    assert float(snapshot(subject.agent)["encoder_memory.terminal_seen"]) == 0
    subject.replay.numbers[:, -2] = rewards
    subject.learn("encoder")
    assert float(snapshot(subject.agent)["encoder_memory.terminal_seen"]) == 1


def test_only_a_policy_that_fails_is_reported_as_such():
    """A pre-activation whose square overflows: the encoder goes on."""
    subject = scene(target_period=2)
    agent = subject.agent
    update(subject)
    with torch.no_grad():
        subject.networks.policy.layers[-1].bias.fill_(1e30)
    before = snapshot(agent, "core.encoder")
    update(subject)
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (1, 1)
    assert not math.isfinite(failure.numbers["policy_loss"])
    assert "encoder_loss" not in failure.numbers
    assert differing(before, snapshot(agent, "core.encoder"))
    agent.forget_failures()
    assert agent.last_failure().in_a_row == 0


def test_an_update_without_a_burst_says_nothing_about_the_encoder():
    subject = scene()
    update(subject)
    metrics = subject.agent.metrics()
    assert math.isfinite(metrics["value_loss"])
    assert math.isnan(metrics["encoder_loss"])


# --- acting -----------------------------------------------------------------------------------------


@every_kind
def test_exploration_is_random_first_then_noisy_and_evaluation_is_neither(kind):
    agent = scene(kind, random_steps=100, exploration_noise=5.0).agent
    image = np.zeros(make_spec(kind).observation_shape, np.uint8)
    plain, noisy, random = (
        [agent.act_async(image, first=False, agent_steps=steps, explore=explore)() for _ in range(30)]
        for steps, explore in ((0, False), (100, True), (99, True))
    )
    assert len(np.unique(plain, axis=0)) == 1
    assert len(np.unique(noisy, axis=0)) > 1
    assert len(np.unique(random, axis=0)) > 1
    if kind == "continuous":  # noise that large leaves nothing between the bounds
        assert np.mean(np.abs(noisy) == 1.0) > 0.5
        assert not (np.abs(random) == 1.0).any()


# --- what is left after learning --------------------------------------------------------------------


@every_kind
def test_a_representation_shows_what_the_agent_computes(kind):
    subject = scene(kind)
    agent, spec, rng = subject.agent, subject.spec, np.random.default_rng(0)
    seen = make_representation(agent.config, spec, agent.state_dict()["tensors"], device=CPU)
    images, actions = images_of(spec, 5), np.stack([spec.actions.sample(rng) for _ in range(5)])
    h, z = seen.encode(images, actions)
    core = subject.networks.core
    with torch.no_grad():
        expected = core.latent(scaled_pixels(torch.from_numpy(images), *agent.config.pixel_range))
        assert torch.equal(h, expected)
        assert torch.equal(z, core.state_action(h, torch.from_numpy(agent.action_vector(actions))))
    assert not z.requires_grad
