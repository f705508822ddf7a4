"""Which loss reaches which parameters, when targets are copied, and what the presets are."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.agent import make_policy
from ogspr.agents.ogspr import Sizes, preset, preset_names
from ogspr.agents.ogspr.losses import latent_loss
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.types import ContinuousActions, EnvSpec
from tests.agents.ogspr.scene import EQUAL, parameters, scene, settings_for, small_config
from tests.agents.scene import (
    KINDS,
    Recording,
    images_of,
    make_agent,
    make_spec,
    parameters_of,
    pieces,
    reached,
)
from tests.agents.states import differing, snapshot

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
    "value": {"f", "u1", "g", "Q"},
    "observation": {"f", "g", "Dec"},
    "short_term_value": {"f", "g", "q"},
    "self_prediction": {"f", "u1", "g", "u2"},
    "policy": {"pi"},
}
# The paper's text has Adapter 1 below these two as well.
REACH_AS_WRITTEN = REACH | {"observation": {"f", "u1", "g", "Dec"}, "short_term_value": {"f", "u1", "g", "q"}}
TARGETS = ("target_core", "target_policy")

every_variant = pytest.mark.parametrize("name", preset_names())
every_kind = pytest.mark.parametrize("kind", KINDS)


def symbol(name):
    (found,) = (s for prefix, s in SYMBOLS.items() if name.startswith(f"{prefix}."))
    return found


# --- where gradients go -----------------------------------------------------------------------------


@every_kind
@every_variant
def test_each_loss_reaches_its_own_modules_and_all_of_each(name, kind):
    # Large errors give a value's bias a slope of 1 or -1 each: an odd number of them is never zero.
    subject = scene(kind, name, batch_size=15)
    found = reached(subject.look().found.terms, parameters(subject))
    learned = pieces(parameters(subject)).keys()
    assert {symbol(parameter) for parameter in learned} == PARTS[name]
    assert found.keys() == {"value", "policy", *settings_for(kind, name).weights}
    reach = REACH_AS_WRITTEN if name == "as-written" else REACH
    for loss, names in found.items():
        assert names == {parameter for parameter in learned if symbol(parameter) in reach[loss]}, loss
    assert set().union(*found.values()) == learned  # no dead parameters
    nets = subject.networks
    assert not any(p.requires_grad for m in (nets.target_core, nets.target_policy) for p in m.parameters())


def test_the_shared_adapter_learns_from_both_of_its_uses():
    """Its gradient is that of its use as u1 and that of its use as u2, together."""
    subject = scene(name="shared-adapter")
    adapter, found = subject.networks.value.core.adapter1, {}
    (head, state_action, seen), loss = subject.look().calls["latent_loss"]
    cut = seen._replace(sequence_h=seen.sequence_h.detach())
    uses = {"both": (head, seen), "first": (copy.deepcopy(adapter), seen), "second": (head, cut)}
    for use, (adapter2, evidence) in uses.items():
        value = latent_loss(adapter2, state_action, evidence)
        assert value == loss
        (found[use],) = torch.autograd.grad(value, adapter.weight, retain_graph=True)
    assert found["first"].abs().max() > 1e-3
    assert found["second"].abs().max() > 1e-3
    torch.testing.assert_close(found["both"], found["first"] + found["second"], rtol=1e-4, atol=1e-5)


@every_kind
def test_targets_become_copies_after_every_period_and_only_then(kind):
    subject = scene(kind, target_period=3)  # believes that it has made one update
    agent, replay = subject.agent, subject.replay
    before = snapshot(agent, *TARGETS)
    for _ in range(2):  # the second and the third
        agent.update(replay, 1)
        assert not differing(before, snapshot(agent, *TARGETS))
    online = {
        name.replace("value_network.core", "target_core").replace("policy", "target_policy", 1): tensor
        for name, tensor in snapshot(agent, "value_network", "policy").items()
        if not name.startswith("value_network.heads")
    }
    agent.update(replay, 1)
    assert not differing(online, snapshot(agent, *TARGETS))


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
    agent = make_agent(small_config(name=name), make_spec("continuous"))
    nets = agent.method.networks
    for parameter_name, parameter in parameters_of(value=nets.value, policy=nets.policy).items():
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


@pytest.mark.parametrize(
    ("suite", "kind", "drawn"), [("dmc", "continuous", False), ("atari100k", "discrete", True)]
)
def test_evaluation_on_atari_draws_its_actions_and_a_seed_repeats_them(suite, kind, drawn):
    """And those of MuJoCo are no matter of chance."""
    config, spec = replace(preset("ogspr", suite), sizes=small_config(kind).sizes), make_spec(kind)
    agent = make_agent(config, spec)
    policy = make_policy(config, spec, device=CPU, accelerator=Recording())
    policy.load_weights(agent.policy_weights())
    images = np.repeat(images_of(spec, 1), 64, axis=0)  # one picture, many times
    first = np.zeros(64, bool)

    def acted(seed):
        actions, _ = policy.act(images, policy.initial_carry(64), first, np.random.default_rng(seed))
        return actions

    def different(actions):
        return len(np.unique(actions.round(4), axis=0)) > 1

    assert different(acted(0)) == different(
        agent.act_async(images, first=first, agent_steps=10**6, explore=False)()
    )
    assert different(acted(0)) == drawn
    assert np.array_equal(acted(0), acted(0))
    assert np.array_equal(acted(0), acted(1)) != drawn


@pytest.mark.parametrize(("suite", "random_steps", "updates"), [("dmc", 10_000, 1), ("atari100k", 2_000, 2)])
def test_updates_begin_after_the_random_steps(suite, random_steps, updates):
    agent = make_agent(replace(preset("ogspr", suite), sizes=EQUAL, batch_size=2), make_spec("continuous"))
    assert [agent.updates_due(random_steps + i) for i in (-1, 0, 1, 2)] == [0, 0, updates, updates]


def test_the_state_of_another_variant_is_refused():
    agent, other = (scene(name=name, batch_size=4).agent for name in ("ogspr", "anonmethod"))
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
