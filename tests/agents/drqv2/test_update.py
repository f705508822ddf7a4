"""Every number of an update against the reference in float64 numpy, and where gradients go."""

import math

import numpy as np
import pytest
import torch

from tests.agents import reference as shared
from tests.agents.drqv2 import reference
from tests.agents.drqv2.scene import NETWORKS, Observed, arrays, observed_update, scene
from tests.agents.test_losses import assert_steps_close, close, places_of_terminals

RATE = 1e-4


def assert_as_reference(update: Observed) -> None:
    close(update.y, update.expected.y)
    close(update.metrics["target_mean"], update.expected.y.mean())
    for name, part in (("value", "value_network"), ("policy", "policy")):
        close(update.metrics[f"{name}_loss"], update.expected.losses[name])
        norm = shared.global_norm(update.expected.slopes[part])
        close(update.metrics[f"{name}_gradient_norm"], norm)
        assert update.expected.slopes[part].keys() == update.before[part].keys()


def test_every_number_of_an_update_with_terminals_everywhere():
    agent, replay = scene(batch_size=48)
    update = observed_update(agent, replay)
    assert set(places_of_terminals(update.window)) == {0, 1, 2, None}
    assert_as_reference(update)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"n_step": 1}, {"n_step": 1}),
        ({"discount": 0.5}, {"discount": 0.5}),
        ({"shift_pad": 2}, {"pad": 2}),
        ({"update_noise_limit": 0.05}, {"limit": 0.05}),
        ({"noise_start": 0.2, "noise_end": 0.01}, {}),
    ],
)
def test_every_setting_reaches_what_it_is_about(changes, settings):
    agent, replay = scene(**changes)
    assert_as_reference(observed_update(agent, replay, reference.Settings(**settings)))


def test_every_number_with_actions_that_noise_drives_beyond_the_border():
    agent, replay = scene()
    with torch.no_grad():
        agent.policy.mlp.layers[-1].bias.fill_(1.2)  # tanh gives about 0.83
    update = observed_update(agent, replay)
    noise = agent._update._accelerator.results["arrange_noise"].policy_action
    assert (update.sigma * noise > 0.25).any()
    assert_as_reference(update)


def test_every_number_at_84_by_84_pixels():
    agent, replay = scene(side=84, batch_size=3)
    assert_as_reference(observed_update(agent, replay))


def test_the_references_slopes_are_slopes():
    """By central differences of its own losses, all weights at once; so that it can be trusted."""
    agent, replay = scene()
    update = observed_update(agent, replay)
    rng, results = np.random.default_rng(0), agent._update._accelerator.results
    noise = results["arrange_noise"]
    chance = reference.Chance(
        noise.now.numpy(),
        noise.later.numpy(),
        noise.target_action.double().numpy(),
        # Without noise beyond the border, which the slope does not know of.
        0.0 * noise.policy_action.double().numpy(),
    )

    def losses(step, directions):
        nets = {
            part: {name: array + step * directions[part][name] for name, array in named.items()}
            for part, named in update.before.items()
        }
        return reference.update(*nets.values(), update.window, chance, update.sigma, reference.Settings())

    # The target moves with the networks, but is a constant to the slope: an episode that ends has none.
    update.window.terminated[:, 0] = True
    for part, name in (("value_network", "value"), ("policy", "policy")):
        directions = {
            other: {n: rng.standard_normal(a.shape) * (other == part) for n, a in named.items()}
            for other, named in update.before.items()
        }
        ends = [losses(step, directions).losses[name] for step in (1e-6, -1e-6)]
        slopes = losses(0.0, directions).slopes[part]
        expected = sum((slopes[n] * d).sum() for n, d in directions[part].items())
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-5)


def test_updates_are_steps_of_adam_and_the_target_follows():
    agent, replay = scene()
    optimisers = {part: shared.AdamW(RATE, 0.0) for part in ("value_network", "policy")}
    for _ in range(3):
        update = observed_update(agent, replay)
        expected = {}
        for part, optimiser in optimisers.items():
            slopes = update.expected.slopes[part]
            expected[part] = optimiser.step(update.before[part], slopes)
            assert_steps_close(arrays(agent, part), expected[part], slopes, RATE)
        target = reference.moved_target(update.before["target_critic"], expected["value_network"], 0.01)
        assert target.keys() == update.before["target_critic"].keys()
        for name, array in arrays(agent, "target_critic").items():
            close(array, target[name], rtol=0, atol=5e-6)
            assert np.abs(array - update.before["target_critic"][name]).max() > 2e-5


def test_gradients_are_not_clipped():
    agent, replay = scene(reward=1000.0)
    update = observed_update(agent, replay)
    assert update.metrics["value_gradient_norm"] > 1000
    moments = arrays(agent, "value_optimiser.first")
    for name, slope in update.expected.slopes["value_network"].items():
        close(moments[name], 0.1 * slope, 1e-3, 1e-4 * np.abs(slope).max())


# --- where gradients go -----------------------------------------------------------------------------


def reached(agent, replay) -> dict[str, set[str]]:
    """By loss: the parameters that it gives a gradient that is not zero."""
    modules = {"value": agent.value_network, "policy": agent.policy, "target": agent.target_critic}
    parameters = {f"{p}.{n}": t for p, module in modules.items() for n, t in module.named_parameters()}
    learning = {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}
    found: dict[str, set[str]] = {"all": set(parameters)}

    def watch(loss_name):
        def take_gradients(result, *_):
            loss = result[0] if isinstance(result, tuple) else result
            slopes = torch.autograd.grad(loss, learning.values(), retain_graph=True, allow_unused=True)
            pairs = zip(learning, slopes, strict=True)
            found[loss_name] = {name for name, slope in pairs if slope is not None and slope.any()}
            return result

        return take_gradients

    agent._update._accelerator.interventions |= {n: watch(n) for n in ("critic_loss", "actor_loss")}
    agent.update(replay)
    return found


def test_the_values_teach_encoder_and_critic_and_the_policy_only_itself():
    agent, replay = scene(batch_size=48)
    found = reached(agent, replay)
    assert found["critic_loss"] == {name for name in found["all"] if name.startswith("value.")}
    assert found["actor_loss"] == {name for name in found["all"] if name.startswith("policy.")}
    assert not any(parameter.requires_grad for parameter in agent.target_critic.parameters())


SHIFTS = {"now": {"value_loss", "policy_loss"}, "later": {"value_loss", "y"}}


def outcome(change=lambda noise, *_: noise):
    agent, replay = scene()
    agent._update._accelerator.interventions["arrange_noise"] = change
    update = observed_update(agent, replay)
    assert_as_reference(update)
    losses = {name: update.metrics[name] for name in ("value_loss", "policy_loss")}
    return losses | {"y": update.y.tolist()}


@pytest.mark.parametrize("which", SHIFTS)
def test_each_shift_moves_its_own_pictures_and_no_others(which):
    unchanged = outcome()
    changed = outcome(lambda noise, *_: noise._replace(**{which: (getattr(noise, which) + 4) % 9}))
    assert {name for name in changed if changed[name] != unchanged[name]} == SHIFTS[which]


def test_all_offsets_occur_and_no_two_draws_are_related():
    agent, replay = scene(batch_size=512)
    agent.update(replay)
    noise = agent._update._accelerator.results["arrange_noise"]
    shifts = torch.cat((noise.now, noise.later), 1).T.double()
    assert all(set(row.tolist()) == set(range(9)) for row in shifts)
    normals = torch.cat((noise.target_action, noise.policy_action), 1).T.double()
    rows = torch.cat((shifts, noise.places[None], normals))
    assert (torch.corrcoef(rows) - torch.eye(len(rows))).abs().max() < 0.18  # 4 standard deviations


# --- replay -----------------------------------------------------------------------------------------


def test_windows_are_drawn_uniformly_and_priorities_left_alone():
    agent, replay = scene(batch_size=512)
    before = replay.replay.priority.clone()
    counts = torch.zeros(len(before))
    for _ in range(4):
        agent.update(replay)
        counts += torch.bincount(replay.windows[0].starts, minlength=len(counts))
    assert replay.priorities is None
    assert torch.equal(replay.replay.priority, before)
    assert replay.finished == 4
    valid = replay.replay.reach >= 3
    assert not counts[~valid].any()
    expected = counts.sum() / valid.sum()
    chi_square = ((counts[valid] - expected) ** 2 / expected).sum() / (valid.sum() - 1)
    assert 0.5 < chi_square < 1.7


# --- numbers that are not finite --------------------------------------------------------------------


def spoil_rewards(agent, replay):  # noqa: ARG001
    replay.replay.numbers[:, -2] = math.nan


def spoil_policy(agent, replay):  # noqa: ARG001
    with torch.no_grad():
        agent.policy.mlp.layers[-1].bias.fill_(math.nan)


@pytest.mark.parametrize(("spoil", "culprit"), [(spoil_rewards, "value_loss"), (spoil_policy, "policy_loss")])
def test_an_update_with_a_number_that_is_not_finite_changes_nothing(spoil, culprit):
    agent, replay = scene()
    agent.update(replay)
    spoil(agent, replay)
    parts = (*NETWORKS, "value_optimiser", "policy_optimiser", "features", "tally")

    def saved():
        tensors = agent.state_dict()["tensors"]
        return {name: t.clone() for name, t in tensors.items() if name.split(".")[0] in parts}

    before = saved()
    for count in (1, 2):
        agent.update(replay)
        assert agent.failures_in_a_row == count
    for name, tensor in saved().items():
        assert torch.equal(tensor.nan_to_num(), before[name].nan_to_num()), name
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (2, 2)
    assert failure.starts == {"value": replay.windows[0].starts.tolist()}
    assert math.isnan(failure.numbers[culprit])
    assert agent.metrics()["failed_updates"] == 2


def test_a_good_update_ends_a_row_of_failures():
    agent, replay = scene()
    rewards = replay.replay.numbers[:, -2].clone()
    spoil_rewards(agent, replay)
    agent.update(replay)
    assert agent.failures_in_a_row == 1
    replay.replay.numbers[:, -2] = rewards
    agent.update(replay)
    assert (agent.failures_in_a_row, agent.failed_updates) == (0, 1)
    assert math.isfinite(agent.metrics()["value_loss"])
