"""Every number of an update against the reference in float64 numpy, and where gradients go."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.agents.drqv2 import reference
from tests.agents.drqv2.scene import arrays, compared, in_the_references_words, scene
from tests.agents.scene import assert_slopes_close, close, parameters_of, pieces, places_of_terminals, reached
from tests.agents.states import under


def assert_as_reference(look, expected):
    assert look.losses.keys() == {"value", "policy"}
    close(look.result("bootstrapped_target"), expected.found.y)
    close(look.found.numbers["target_mean"], expected.found.y.mean())
    slopes = look.slopes()
    for name, part in (("value", "value_network"), ("policy", "policy")):
        close(look.losses[name], expected.found.losses[name])
        assert_slopes_close(in_the_references_words(slopes[name]), expected.found.slopes[part])
        assert expected.found.slopes[part].keys() == expected.networks[part].keys()
    assert not look.found.priorities


def test_every_number_of_an_update_with_terminals_everywhere():
    look, expected = compared(scene(batch_size=48))
    assert places_of_terminals(expected.window) == {0, 1, 2, None}
    assert_as_reference(look, expected)


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
    assert_as_reference(*compared(scene(**changes), reference.Settings(**settings)))


def test_every_number_with_actions_that_noise_drives_beyond_the_border():
    subject = scene()
    with torch.no_grad():
        subject.networks.policy.mlp.layers[-1].bias.fill_(1.2)  # tanh gives about 0.83
    look, expected = compared(subject)
    assert (expected.sigma * look.noise.policy_action > 0.25).any()
    assert_as_reference(look, expected)


def test_every_number_at_84_by_84_pixels():
    assert_as_reference(*compared(scene(side=84, batch_size=3)))


def test_the_references_slopes_are_slopes():
    """By central differences of its own losses, all weights at once; so that it can be trusted."""
    _, expected = compared(scene())
    rng = np.random.default_rng(0)
    # Without noise beyond the border, which the slope does not know of.
    chance = replace(expected.chance, policy_normals=0.0 * expected.chance.policy_normals)

    def losses(step, directions):
        nets = {
            part: {name: array + step * directions[part][name] for name, array in named.items()}
            for part, named in expected.networks.items()
        }
        given = (expected.window, chance, expected.sigma, reference.Settings())
        return reference.update(*nets.values(), *given)

    # The target moves with the networks, but is a constant to the slope: an episode that ends has none.
    expected.window.terminated[:, 0] = True
    for part, name in (("value_network", "value"), ("policy", "policy")):
        directions = {
            other: {n: rng.standard_normal(a.shape) * (other == part) for n, a in named.items()}
            for other, named in expected.networks.items()
        }
        ends = [losses(step, directions).losses[name] for step in (1e-6, -1e-6)]
        slopes = losses(0.0, directions).slopes[part]
        right = sum((slopes[n] * d).sum() for n, d in directions[part].items())
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(right, rel=1e-5)


def test_the_target_follows_what_the_optimiser_has_made_of_the_critic():
    subject = scene()
    for _ in range(3):
        before = arrays(subject.agent, "target_critic")
        subject.learn()
        target = reference.moved_target(before, arrays(subject.agent, "value_network"), 0.01)
        assert target.keys() == before.keys()
        for name, array in arrays(subject.agent, "target_critic").items():
            close(array, target[name], rtol=0, atol=1e-7)
            assert np.abs(array - before[name]).max() > 2e-5


# --- where gradients go -----------------------------------------------------------------------------


def test_the_values_teach_encoder_and_critic_and_the_policy_only_itself():
    subject = scene(batch_size=48)
    nets = subject.networks
    parameters = parameters_of(value=nets.value, policy=nets.policy)
    names = pieces(parameters).keys()
    found = reached(subject.look().found.terms, parameters)
    assert found == {"value": under(names, "value"), "policy": under(names, "policy")}
    assert not any(parameter.requires_grad for parameter in nets.target_critic.parameters())


# --- what is left to chance -------------------------------------------------------------------------

SHIFTS = {"now": {"value", "policy"}, "later": {"value", "y"}}


def outcome(change=lambda noise: noise):
    look, expected = compared(scene(), change=change)
    assert_as_reference(look, expected)
    return look.losses | {"y": look.result("bootstrapped_target").tolist()}


@pytest.mark.parametrize("which", SHIFTS)
def test_each_shift_moves_its_own_pictures_and_no_others(which):
    unchanged = outcome()
    changed = outcome(lambda noise: noise._replace(**{which: (getattr(noise, which) + 0.5) % 1}))
    assert {name for name in changed if changed[name] != unchanged[name]} == SHIFTS[which]


def test_windows_are_drawn_uniformly_and_priorities_left_alone():
    subject = scene(batch_size=512)
    replay = subject.replay
    replay.priority.copy_(torch.linspace(1.0, 50.0, len(replay.priority)))
    before = replay.priority.clone()
    counts = torch.zeros(len(before))
    for _ in range(4):
        counts += torch.bincount(subject.look().windows["value"].starts, minlength=len(counts))
        subject.learn()
    assert torch.equal(replay.priority, before)
    valid = replay.reach >= 3
    assert not counts[~valid].any()
    expected = counts.sum() / valid.sum()
    chi_square = ((counts[valid] - expected) ** 2 / expected).sum() / (valid.sum() - 1)
    assert 0.5 < chi_square < 1.7
