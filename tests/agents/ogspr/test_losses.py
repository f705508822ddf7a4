"""Every number of an update against hand numbers and against the reference in float64 numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.ogspr import Sizes, preset_names
from ogspr.ops.values import (
    clipped_noise,
    gumbel,
    lap_priority,
    n_step_return,
    policy_loss,
    squared_error,
    survival,
    two_hot_cross_entropy,
    value_loss,
    value_target,
)
from tests.agents import reference
from tests.agents.ogspr.scene import ALL_UNEQUAL, UNEQUAL, compared, networks, scene, settings_for
from tests.agents.scene import KINDS, assert_slopes_close, close, places_of_terminals

ONE = torch.tensor(1.0)


# --- hand numbers -----------------------------------------------------------------------------------


def test_a_step_is_alive_until_the_step_after_a_terminal_one():
    flags = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]])
    close(survival(flags), [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]])


def test_the_return_counts_rewards_up_to_the_terminal_one():
    rewards = torch.tensor([[1.0, 2.0, 4.0]]).expand(4, 3)
    alive = survival(torch.tensor([[0.0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]))
    # 1 + 2/2 + 4/4
    close(n_step_return(rewards, alive, 0.5), [3.0, 3.0, 2.0, 1.0])


def test_the_value_target_adds_the_smaller_value_where_the_episode_goes_on():
    alive = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
    values = torch.tensor([[8.0, 8.0, -16.0], [16.0, 16.0, 80.0]])
    returns = torch.tensor([3.0, 3.0, 0.0])
    # gamma^3 = 1/8
    close(value_target(returns, values, alive, 0.5, ONE, ONE), [4.0, 3.0, -2.0])


def test_a_scaled_value_target_is_in_units_of_its_own_scale():
    alive, values = torch.ones(1, 3), torch.tensor([[8.0], [12.0]])
    scaled = value_target(torch.tensor([3.0]), values, alive, 0.5, torch.tensor(2.0), torch.tensor(10.0))
    close(scaled, [(3 + 0.25 * 8 * 10) / 2])


def test_the_value_loss_is_quadratic_up_to_one_and_adds_both_values():
    values, target = torch.tensor([[0.0, 3.0], [1.0, 1.0]]), torch.tensor([0.5, 1.0])
    # Q1: 0.5 * 0.25 and 2 - 0.5; Q2: 0.5 * 0.25 and 0
    close(value_loss(values, target, "sum"), (0.125 + 1.5) / 2 + (0.125 + 0.0) / 2)
    close(value_loss(values, target, "mean"), (0.125 + 1.5) / 4 + (0.125 + 0.0) / 4)


def test_the_priority_is_a_power_of_the_larger_error_and_at_least_that_of_the_minimum():
    values, target = torch.tensor([[0.0, 3.0, 5.0], [0.5, -5.0, 5.0]]), torch.tensor([0.5, 1.0, 5.0])
    close(lap_priority(values, target, 0.4, 1.0), [1.0, 6**0.4, 1.0])
    close(lap_priority(values, target, 0.5, 4.0), [2.0, 6**0.5, 2.0])


def test_the_policy_loss_is_the_mean_value_negated_and_a_mean_square():
    values, pre = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[1.0, 2.0], [0.0, -3.0]])
    close(policy_loss(values, pre, 0.1), -3.0 + 0.1 * 14 / 4)


@pytest.mark.parametrize(("reduction", "expected"), [("mean", (5 / 2 + 0) / 2), ("sum", (5 + 0) / 2)])
def test_the_squared_error_leaves_out_what_is_not_alive(reduction, expected):
    predicted, target = torch.tensor([[[1.0], [2.0]], [[9.0], [9.0]]]), torch.zeros(2, 2, 1)
    close(squared_error(predicted, target, torch.tensor([1.0, 0.0]), reduction), expected)


def test_noise_is_scaled_before_it_is_clipped():
    normals = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0])
    close(clipped_noise(normals, 0.2, 0.3), [-0.3, -0.2, 0.0, 0.2, 0.3])


def test_gumbel_noise_has_its_hand_numbers_and_is_finite_at_the_ends():
    uniforms = torch.tensor([math.exp(-1), math.exp(-math.exp(2)), math.exp(-math.exp(-2))])
    close(gumbel(uniforms), [0.0, -2.0, 2.0])
    ends = gumbel(torch.tensor([0.0, 1.0]))
    assert torch.isfinite(ends).all()
    assert ends[0] < -4
    assert ends[1] > 15


def test_the_cross_entropy_with_a_two_hot_code_inside_and_beyond_the_bins():
    bins = reference.symexp_bins()
    assert bins[[0, 32, 64]] == pytest.approx([-22025.47, 0.0, 22025.47])
    values = np.array([-1e6, -22025.0, -3.3, 0.0, 1e-3, 1.0, bins[40], 5e4])
    logits = np.random.default_rng(0).standard_normal((len(values), 65))
    expected = reference.cross_entropy(logits, values, bins)
    close(
        two_hot_cross_entropy(*(torch.from_numpy(array) for array in (logits, values, bins))), expected, 1e-9
    )


# --- the whole update -------------------------------------------------------------------------------


def assert_as_reference(look, expected):
    """Losses, targets and priorities of an update."""
    names = {"value", "policy", *expected.settings.weights}
    assert look.losses.keys() == names
    close([look.losses[name] for name in names], [expected.losses[name] for name in names])
    close(
        sum(look.weights[name] * look.losses[name] for name in names - {"policy"}),
        expected.losses["combined"],
    )
    close(look.result("n_step_return"), expected.targets.returns)
    close(look.result("bootstrapped_target"), expected.targets.y)
    close(look.found.priorities["value"], expected.priorities)
    close(look.found.numbers["target_mean"], expected.targets.y.mean())
    close(look.found.numbers["priority_mean"], expected.priorities.mean())
    close(look.found.numbers["priority_max"], expected.priorities.max())


def assert_gradients_as_reference(look, expected):
    for name, loss in (("value", "combined"), ("policy", "policy")):
        close(expected.totals[name].item(), expected.losses[loss], 1e-10)
        assert_slopes_close(look.slopes()[name], expected.slopes[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "sizes"), [("ogspr", UNEQUAL), ("as-written", ALL_UNEQUAL)])
def test_every_number_of_an_update_with_terminals_everywhere(kind, name, sizes):
    settings = settings_for(kind, name)
    look, expected = compared(scene(kind, name, sizes=sizes, batch_size=48), settings)
    assert places_of_terminals(expected.value) == {0, 1, 2, None}
    assert places_of_terminals(expected.sequence) == {0, 1, 2, 3, 4, None}
    assert (expected.priorities == 1).any()  # the minimum
    assert (expected.priorities > 1).any() == (settings.priority_exponent > 0)
    assert_as_reference(look, expected)
    assert_gradients_as_reference(look, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", preset_names())
def test_every_variant_is_the_references(name, kind):
    look, expected = compared(scene(kind, name), settings_for(kind, name))
    assert_as_reference(look, expected)
    assert_gradients_as_reference(look, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_at_the_sizes_of_the_paper(kind):
    assert_as_reference(*compared(scene(kind, side=84, sizes=Sizes(), batch_size=4), settings_for(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradients_are_the_slopes_of_the_reference(kind):
    """By central differences: nothing of torch, and nothing of the agent, has a say in the left side."""
    subject, settings, rng = scene(kind), settings_for(kind), np.random.default_rng(0)
    _, expected = compared(subject, settings)
    subject = scene(kind)  # as it was before the look
    for part, loss in (("value", "combined"), ("policy", "policy")):
        slopes = expected.slopes[part]
        # The vectors of the power iteration are constants to the gradient, but not to a difference.
        names = [name for name in slopes if not name.endswith("expand.weight")]
        direction = {name: rng.standard_normal(slopes[name].shape) for name in names}
        ends = []
        for step in (1e-7, -1e-7):
            nudged = networks(subject.agent, {part: {name: step * d for name, d in direction.items()}})
            given = (expected.value, expected.sequence, expected.chance, expected.targets, settings)
            found, _ = reference.losses(nudged, *given)
            ends.append(found[loss])
        slope = (ends[0] - ends[1]) / 2e-7
        assert slope == pytest.approx(sum((slopes[n] * d).sum() for n, d in direction.items()), rel=1e-6)


def test_the_weight_of_the_pre_activation_reaches_the_policy():
    settings = replace(settings_for(), pre_activation_weight=1e4)
    look, expected = compared(scene(pre_activation_weight=1e4), settings)
    assert reference.global_norm(expected.slopes["policy"]) > 100
    assert_gradients_as_reference(look, expected)


# --- shifts -----------------------------------------------------------------------------------------

SHIFTS = {
    "now": {"value", "observation", "short_term_value", "policy", "next_frame"},
    "later": {"value", "y"},
    "sequence_now": {"self_prediction"},
    "sequence_later": {"self_prediction"},
}


def outcome(change=lambda noise: noise):
    """What an update computes when its noise is changed."""
    look, expected = compared(scene(), settings_for(), change)
    assert_as_reference(look, expected)
    y, frame = look.result("bootstrapped_target"), look.result("next_frame")
    return look.losses | {"y": y.tolist(), "next_frame": frame.tolist()}


@pytest.fixture(scope="module")
def unchanged():
    return outcome()


@pytest.mark.parametrize("which", SHIFTS)
def test_each_shift_moves_its_own_pictures_and_no_others(which, unchanged):
    changed = outcome(lambda noise: noise._replace(**{which: (getattr(noise, which) + 4) % 9}))
    assert {name for name in changed if changed[name] != unchanged[name]} == SHIFTS[which]


def test_each_future_state_of_a_sequence_has_a_shift_of_its_own(unchanged):
    """Changing the shift of one of the K states changes the loss, and as the reference says."""

    def third_only(noise):
        later = noise.sequence_later.view(5, -1, 2).clone()
        later[2] = (later[2] + 4) % 9
        return noise._replace(sequence_later=later.flatten(0, 1))

    assert outcome(third_only)["self_prediction"] != unchanged["self_prediction"]


def test_the_next_frame_shows_the_coordinates_it_was_shifted_by():
    """Frames that show their own coordinates, moved by the shift of s_t; borders are repeated."""
    subject = scene()
    place = torch.arange(36, dtype=torch.uint8)
    subject.replay.frames[:, 0], subject.replay.frames[:, 1] = place[:, None], place[None, :]
    look = subject.look()
    frame = look.result("next_frame")  # bytes
    moved = (place + look.noise.now[:, :, None] - 4).clamp(0, 35)  # (B, 2, 36)
    close(frame[:, 0, :, 0], moved[:, 0])
    close(frame[:, 1, 0, :], moved[:, 1])
