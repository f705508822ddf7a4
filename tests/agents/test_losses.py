"""Every number of an update against hand numbers and against the reference in float64 numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.ogspr import preset_names
from ogspr.agents.ogspr.config import Sizes
from ogspr.agents.optimisation import ClippedAdamW
from ogspr.ops.returns import n_step_return, survival, value_target
from ogspr.ops.two_hot import two_hot_cross_entropy
from ogspr.ops.values import clipped_noise, gumbel, lap_priority, policy_loss, squared_error, value_loss
from tests.agents import reference
from tests.agents.double import update_with_slopes
from tests.agents.scene import (
    ALL_UNEQUAL,
    KINDS,
    UNEQUAL,
    arrays,
    networks,
    observed_update,
    scene,
    settings_for,
)

ONE = torch.tensor(1.0)


def close(actual, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)


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


def assert_as_reference(update, settings):
    """Losses, targets and priorities of an update."""
    for name in ("value", "policy", "combined", *settings.weights):
        close(update.metrics[f"{name}_loss"], update.expected[name])
    close(update.returns, update.targets.returns)
    close(update.y, update.targets.y)
    close(update.priorities, update.expected_priorities)
    close(update.metrics["target_mean"], update.targets.y.mean())
    close(update.metrics["priority_mean"], update.expected_priorities.mean())


def assert_as_gradients(update, slopes):
    close(slopes.combined, update.expected["combined"], 1e-10)
    close(slopes.policy_loss, update.expected["policy"], 1e-10)
    close(update.metrics["value_gradient_norm"], reference.global_norm(slopes.value_network))
    close(update.metrics["policy_gradient_norm"], reference.global_norm(slopes.policy))


def places_of_terminals(window):
    """Where in each stretch the first terminal is; None: nowhere."""
    return [int(np.argmax(flags)) if flags.any() else None for flags in window.terminated]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "sizes"), [("ogspr", UNEQUAL), ("as-written", ALL_UNEQUAL)])
def test_every_number_of_an_update_with_terminals_everywhere(kind, name, sizes):
    agent, replay = scene(kind, name, sizes=sizes, batch_size=48)
    settings = settings_for(kind, name)
    update, slopes = update_with_slopes(agent, replay, settings)
    assert set(places_of_terminals(update.value)) == {0, 1, 2, None}
    assert set(places_of_terminals(update.sequence)) == {0, 1, 2, 3, 4, None}
    assert (update.expected_priorities == 1).any()  # the minimum
    assert (update.expected_priorities > 1).any() == (settings.priority_exponent > 0)
    assert_as_reference(update, settings)
    assert_as_gradients(update, slopes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", preset_names())
def test_every_variant_is_the_references(name, kind):
    agent, replay = scene(kind, name)
    settings = settings_for(kind, name)
    update, slopes = update_with_slopes(agent, replay, settings)
    assert_as_reference(update, settings)
    assert_as_gradients(update, slopes)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_at_the_sizes_of_the_paper(kind):
    agent, replay = scene(kind, side=84, sizes=Sizes(), batch_size=4)
    settings = settings_for(kind)
    update = observed_update(agent, replay, settings)
    assert_as_reference(update, settings)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradients_are_the_slopes_of_the_reference(kind):
    """By central differences: nothing of torch, and nothing of the agent, has a say in the right side."""
    agent, replay = scene(kind)
    settings, rng = settings_for(kind), np.random.default_rng(0)
    update, slopes = update_with_slopes(agent, replay, settings)
    agent, replay = scene(kind)  # as it was before the update
    for part, loss in (("value_network", "combined"), ("policy", "policy")):
        gradients = getattr(slopes, part)
        # The vectors of the power iteration are constants to the gradient, but not to a difference.
        names = [name for name in gradients if not name.endswith("expand.weight")]
        direction = {name: rng.standard_normal(gradients[name].shape) for name in names}
        ends = []
        for step in (1e-7, -1e-7):
            nudged = networks(agent, {part: {name: step * d for name, d in direction.items()}})
            found, _ = reference.losses(
                nudged, update.value, update.sequence, update.chance, update.targets, settings
            )
            ends.append(found[loss])
        slope = (ends[0] - ends[1]) / 2e-7
        assert slope == pytest.approx(sum((gradients[n] * d).sum() for n, d in direction.items()), rel=1e-6)


# --- shifts -----------------------------------------------------------------------------------------

SHIFTS = {
    "now": {"value", "observation", "short_term_value", "policy", "combined", "next_frame"},
    "later": {"value", "combined", "y"},
    "sequence_now": {"self_prediction", "combined"},
    "sequence_later": {"self_prediction", "combined"},
}


def outcome(change=lambda noise, *_: noise):
    """What an update computes when its noise is changed."""
    agent, replay = scene("continuous")
    recording = agent._update._accelerator
    recording.interventions["arrange_noise"] = change
    update = observed_update(agent, replay, settings_for("continuous"))
    assert_as_reference(update, settings_for("continuous"))
    losses = {name: update.metrics[f"{name}_loss"] for name in update.expected}
    return losses | {"y": update.y.tolist(), "next_frame": recording.evidence.next_frame.tolist()}


@pytest.fixture(scope="module")
def unchanged():
    return outcome()


@pytest.mark.parametrize("which", SHIFTS)
def test_each_shift_moves_its_own_pictures_and_no_others(which, unchanged):
    changed = outcome(lambda noise, *_: noise._replace(**{which: (getattr(noise, which) + 4) % 9}))
    assert {name for name in changed if changed[name] != unchanged[name]} == SHIFTS[which]


def test_each_future_state_of_a_sequence_has_a_shift_of_its_own(unchanged):
    """Changing the shift of one of the K states changes the loss, and as the reference says."""

    def third_only(noise, *_):
        later = noise.sequence_later.view(5, -1, 2).clone()
        later[2] = (later[2] + 4) % 9
        return noise._replace(sequence_later=later.flatten(0, 1))

    assert outcome(third_only)["self_prediction"] != unchanged["self_prediction"]


def test_the_next_frame_shows_the_coordinates_it_was_shifted_by():
    """Frames that show their own coordinates, moved by the shift of s_t; borders are repeated."""
    agent, replay = scene("continuous")
    place = torch.arange(36, dtype=torch.uint8)
    replay.replay.frames[:, 0], replay.replay.frames[:, 1] = place[:, None], place[None, :]
    agent.update(replay)
    now = agent._update._accelerator.results["arrange_noise"].now
    frame = agent._update._accelerator.evidence.next_frame  # bytes
    moved = (place + now[:, :, None] - 4).clamp(0, 35)  # (B, 2, 36)
    close(frame[:, 0, :, 0], moved[:, 0])
    close(frame[:, 1, 0, :], moved[:, 1])


def test_all_offsets_of_all_shifts_occur_and_no_two_shifts_are_related():
    agent, replay = scene("continuous", batch_size=256, sizes=Sizes(1, 4, 4, 4, 4, 4, 4, 8, (8, 8, 8)))
    agent.update(replay)
    noise = agent._update._accelerator.results["arrange_noise"]
    fields = [noise.now, noise.later, noise.sequence_now, *noise.sequence_later.view(5, 256, 2)]
    columns = torch.cat(fields, 1).T.double()  # down and right of each
    assert all(set(column.tolist()) == set(range(9)) for column in columns)
    places = torch.stack((noise.value_places, noise.sequence_places))
    related = torch.corrcoef(torch.cat((columns, places))) - torch.eye(len(columns) + 2)
    assert related.abs().max() < 0.25  # 4 standard deviations


# --- the optimiser ----------------------------------------------------------------------------------


def assert_steps_close(after, expected, gradients, learning_rate):
    """Adam divides by the size of the gradient: where that is rounding error, any step is right."""
    for name, array in expected.items():
        telling = np.abs(gradients[name]) > 1e-3 * np.abs(gradients[name]).max()
        close(after[name][telling], array[telling], rtol=0, atol=2e-3 * learning_rate + 1e-7)
        close(after[name], array, rtol=0, atol=3 * learning_rate)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("clip_norm", "weight_decay"), [(1e6, 1.0), (20.0, 1e-4)])
def test_updates_are_steps_of_adamw_with_a_clipped_gradient(kind, clip_norm, weight_decay):
    agent, replay = scene(kind, reward=1000.0, clip_norm=clip_norm, weight_decay=weight_decay)
    optimisers = {part: reference.AdamW(3e-4, weight_decay) for part in ("value_network", "policy")}
    for _ in range(3):
        before = {part: arrays(agent, part) for part in optimisers}
        _, slopes = update_with_slopes(agent, replay, settings_for(kind))
        assert (reference.global_norm(slopes.value_network) > clip_norm) == (clip_norm == 20.0)
        gradients = {
            "value_network": reference.clipped(slopes.value_network, clip_norm),
            "policy": slopes.policy,  # never clipped
        }
        for part, optimiser in optimisers.items():
            expected = optimiser.step(before[part], gradients[part])
            assert_steps_close(arrays(agent, part), expected, gradients[part], 3e-4)


def test_the_policy_gradient_is_not_clipped():
    agent, replay = scene("continuous", pre_activation_weight=1e4)
    settings = replace(settings_for("continuous"), pre_activation_weight=1e4)
    _, slopes = update_with_slopes(agent, replay, settings)
    assert reference.global_norm(slopes.policy) > 100
    moments = arrays(agent, "policy_optimiser.first")
    for name, gradient in slopes.policy.items():
        close(moments[name], 0.1 * gradient, 1e-3, 1e-4 * np.abs(gradient).max())


def clipped_adamw(parameters, **numbers):
    return ClippedAdamW([parameters], accelerate=lambda function: function, **numbers)


def take_step(optimiser, gradients):
    vectors = optimiser.gather(gradients)
    optimiser.step(vectors, [torch.linalg.vector_norm(vector) for vector in vectors], torch.zeros(()))


def test_the_optimiser_alone_follows_the_reference_for_many_steps():
    rng = np.random.default_rng(0)
    start = {"a": rng.standard_normal((3, 2)), "b": rng.standard_normal(4)}
    parameters = {name: torch.nn.Parameter(torch.from_numpy(a).float()) for name, a in start.items()}
    ours = clipped_adamw(parameters, learning_rate=0.1, weight_decay=0.3, clip_norm=2.0)
    theirs, expected = reference.AdamW(0.1, 0.3), start
    for i in range(10):
        gradients = {name: (i + 1) * rng.standard_normal(a.shape) for name, a in start.items()}
        take_step(ours, [torch.from_numpy(gradients[name]).float() for name in parameters])
        expected = theirs.step(expected, reference.clipped(gradients, 2.0))
    for name, array in expected.items():
        close(parameters[name].detach(), array)


def test_weights_begin_where_compiled_kernels_expect_them():
    """Kernels that torch has compiled for one task and kept crash where the same weights begin elsewhere."""
    shapes = {"bias": (2,), "kernel": (3, 3), "weight": (64, 64), "last": (1,)}
    start = {name: torch.randn(shape) for name, shape in shapes.items()}
    parameters = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in start.items()}
    optimiser = clipped_adamw(parameters, learning_rate=0.1, weight_decay=0.3, clip_norm=None)
    take_step(optimiser, [torch.zeros(shape) for shape in shapes.values()])
    state = optimiser.state_dict()
    for name, parameter in parameters.items():
        for tensor in (parameter, state[f"first.{name}"], state[f"second.{name}"]):
            assert tensor.storage_offset() * tensor.element_size() % 128 == 0
        close(parameter.detach(), 0.97 * start[name])


def test_a_hand_number_of_the_optimiser():
    """g = (3, 4) clipped at 1 is (0.6, 0.8); Adam's first step has the size of the learning rate."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    optimiser = clipped_adamw({"w": weight}, learning_rate=0.1, weight_decay=0.5, clip_norm=1.0)
    take_step(optimiser, [torch.tensor([3.0, 4.0])])
    close(optimiser.state_dict()["first.w"], [0.06, 0.08])
    close(optimiser.state_dict()["second.w"], [0.36e-3, 0.64e-3], atol=1e-8)
    close(weight.detach(), [1 - 0.05 - 0.1, -1 + 0.05 - 0.1])
