"""Every number of both kinds of update against hand numbers and the reference in float64 numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.mrq import Sizes
from ogspr.agents.mrq.losses import model_losses, terminal_seen, unrolled
from ogspr.agents.mrq.networks import Prediction
from tests.agents import reference as common
from tests.agents.mrq import reference
from tests.agents.mrq.scene import (
    networks,
    observed_encoder_update,
    observed_value_update,
    recording,
    scene,
    settings_for,
    update_encoder,
)
from tests.agents.scene import KINDS, arrays

every_kind = pytest.mark.parametrize("kind", KINDS)
MODEL_LOSSES = ("dynamics", "reward", "done", "encoder")


def close(actual, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)


# --- hand numbers -----------------------------------------------------------------------------------


def test_losses_are_added_over_the_steps_and_end_with_the_terminal_one():
    """Two sequences of two steps; the second one is over after its first step."""
    alive = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    predicted = Prediction(
        h=torch.tensor([[1.0, 3.0], [2.0, 0.0], [0.0, 2.0], [99.0, 99.0]]),
        reward=torch.log(
            torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.6, 0.2], [1.0, 1.0, 1.0]])
        ),
        done=torch.tensor([[0.5], [0.5], [-1.0], [99.0]]),
    )
    rewards = torch.tensor([[-1.0, 0.5], [7.0, 99.0]])
    losses = model_losses(predicted, torch.zeros(4, 2), rewards, alive, torch.tensor([-1.0, 0.0, 1.0]))
    close(losses["dynamics"], ((1 + 9) / 2 + (4 + 0) / 2) / 2 + (0 + 4) / 2 / 2)
    # -1 is the first bin, 7 lies beyond the last, 0.5 is half the second and half the third
    first = -(math.log(0.5) + math.log(0.8)) / 2
    close(losses["reward"], first - (math.log(0.6) + math.log(0.2)) / 2 / 2)
    close(losses["done"], (0.25 + 0.25) / 2 + 1 / 2)  # of targets 0, 1 and 0


def test_the_model_goes_on_from_what_it_predicts():
    """Latent states double and the action is added: 1, 3, 8."""

    def state_action(h, action):
        return 2.0 * h + action

    def model(z):
        return Prediction(z, 10.0 * z, z - 1.0)

    predicted = unrolled(state_action, model, torch.tensor([[1.0]]), torch.tensor([[[1.0], [2.0]]]))
    assert predicted.h.tolist() == [[3.0], [8.0]]
    assert predicted.reward.tolist() == [[30.0], [80.0]]
    assert predicted.done.tolist() == [[2.0], [7.0]]


def test_a_terminal_that_was_seen_stays_seen():
    without, with_one = torch.ones(2, 4), torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    zero, one = torch.tensor(0.0), torch.tensor(1.0)
    assert [float(terminal_seen(*case)) for case in ((zero, without), (zero, with_one), (one, without))] == [
        0.0,
        1.0,
        1.0,
    ]


# --- whole updates ----------------------------------------------------------------------------------


def places_of_terminals(window):
    """Where in each stretch the first terminal is; None: nowhere."""
    return {int(np.argmax(flags)) if flags.any() else None for flags in window.terminated}


def assert_encoder_as_reference(update):
    for name in MODEL_LOSSES:
        close(update.metrics[f"{name}_loss"], update.expected[name])


def assert_values_as_reference(update):
    for name in ("value", "policy"):
        close(update.metrics[f"{name}_loss"], update.expected[name])
    close(update.returns, update.expected_returns)
    close(update.y, update.expected_y)
    close(update.priorities, update.expected_priorities)
    close(update.metrics["target_mean"], update.expected_y.mean())


@every_kind
def test_every_number_of_an_encoder_update_with_terminals_everywhere(kind):
    agent, replay = scene(kind, batch_size=48)
    update = observed_encoder_update(agent, replay, settings_for(kind))
    assert places_of_terminals(update.sequence) == {0, 1, 2, 3, 4, None}
    assert_encoder_as_reference(update)
    together = {f"{part}.{n}": g for part, found in update.gradients.items() for n, g in found.items()}
    close(update.metrics["encoder_gradient_norm"], common.global_norm(together))


@every_kind
def test_every_number_of_a_value_update_with_terminals_everywhere(kind):
    agent, replay = scene(kind, batch_size=48)
    update = observed_value_update(agent, replay, settings_for(kind))
    assert places_of_terminals(update.value) == {0, 1, 2, None}
    assert (update.expected_priorities == 1).any()  # the minimum
    assert (update.expected_priorities > 1).any()
    assert_values_as_reference(update)
    for part, name in (("core", "value"), ("policy", "policy")):
        norm = common.global_norm(update.gradients[part])
        close(update.metrics[f"{name}_gradient_norm"], norm)


@every_kind
def test_every_number_at_the_sizes_of_the_paper(kind):
    agent, replay = scene(kind, side=84, sizes=Sizes(), batch_size=8)
    assert_encoder_as_reference(observed_encoder_update(agent, replay, settings_for(kind)))
    assert_values_as_reference(observed_value_update(agent, replay, settings_for(kind)))


def test_other_horizons_and_weights():
    numbers = {"horizon": 2, "n_step": 1, "dynamics_weight": 0.5, "reward_weight": 2.0, "done_weight": 3.0}
    agent, replay = scene("continuous", **numbers)
    settings = settings_for("continuous", **numbers)
    assert_encoder_as_reference(observed_encoder_update(agent, replay, settings))
    assert_values_as_reference(observed_value_update(agent, replay, settings))


def slope(loss_at, gradients, seed=0):
    """The slope in a random direction: by central differences, and as the gradient says."""
    rng = np.random.default_rng(seed)
    way = {
        part: {name: rng.standard_normal(g.shape) for name, g in found.items()}
        for part, found in gradients.items()
    }
    ends = []
    for step in (1e-6, -1e-6):
        nudges = {part: {n: step * d for n, d in found.items()} for part, found in way.items()}
        ends.append(loss_at(nudges))
    expected = sum((gradients[part][n] * d).sum() for part, found in way.items() for n, d in found.items())
    return (ends[0] - ends[1]) / 2e-6, expected


@every_kind
def test_the_gradients_are_the_slopes_of_the_reference(kind):
    """By central differences: nothing of torch, and nothing of the agent, has a say in the left side."""
    settings = settings_for(kind)
    agent, replay = scene(kind)
    model = observed_encoder_update(agent, replay, settings)
    agent, replay = scene(kind)
    value = observed_value_update(agent, replay, settings)
    agent, _ = scene(kind)  # as it was before the updates

    def encoder_loss(nudges):
        nets = networks(agent, nudges)
        found = reference.encoder_losses(nets, model.sequence, model.chance, model.targets, settings)
        return found["encoder"]

    def loss_of(name):
        def loss(nudges):
            nets = networks(agent, nudges)
            return reference.value_losses(nets, value.value, value.chance, value.expected_y, settings)[0][
                name
            ]

        return loss

    for loss, gradients in (
        (encoder_loss, model.gradients),
        (loss_of("value"), {"core": value.gradients["core"]}),
        (loss_of("policy"), {"policy": value.gradients["policy"]}),
    ):
        measured, expected = slope(loss, gradients)
        assert measured == pytest.approx(expected, rel=1e-6)


# --- terminals, rewards, scales ---------------------------------------------------------------------


def forget_terminals(replay):
    """As if no episode had ended by itself; the flags, to be put back."""
    flags = replay.replay.numbers[:, -1].clone()
    replay.replay.numbers[:, -1] = 0.0
    return flags


def test_terminals_are_learned_from_the_first_one_on():
    agent, replay = scene("continuous")
    flags = forget_terminals(replay)
    for terminals, seen in ((False, False), (True, True), (False, True)):
        replay.replay.numbers[:, -1] = flags if terminals else 0.0
        done_before = agent.networks.model.outputs.weight[-1].clone()
        update = observed_encoder_update(agent, replay, settings_for("continuous", terminal_seen=seen))
        assert bool(update.sequence.terminated.any()) == terminals
        assert_encoder_as_reference(update)
        assert update.metrics["done_loss"] > 0
        moved = (agent.networks.model.outputs.weight[-1] - done_before).abs().max() > 1e-6
        assert bool(moved) == seen


@every_kind
def test_rewards_beyond_the_bins_count_as_the_outermost_ones(kind):
    agent, replay = scene(kind, reward=1e6)
    update = observed_encoder_update(agent, replay, settings_for(kind))
    assert np.abs(update.sequence.rewards).max() > 1e5
    assert_encoder_as_reference(update)


def test_values_learn_after_the_burst_in_units_of_the_mean_absolute_reward():
    """From targets of before the burst, which are in the units of then."""
    agent, replay = scene("continuous", target_period=1, encoder_learning_rate=0.1)
    # First in units of 4, from values in units of 1; then in units of 1/2, from values in units of 4.
    for rewards, scales in ((4.0, (4.0, 1.0)), (-0.5, (0.5, 4.0))):
        replay.replay.numbers[:, -2] = rewards  # every step
        encoder = arrays(agent, "core")["encoder.head.weight"]
        settings = settings_for("continuous", scales=scales)
        assert_values_as_reference(observed_value_update(agent, replay, settings, synced=True))
        assert np.abs(arrays(agent, "core")["encoder.head.weight"] - encoder).max() > 0.01


def test_without_any_reward_the_unit_is_one():
    agent, replay = scene("continuous", target_period=1)
    replay.replay.numbers[:, -2] = 0.0
    agent.update(replay)
    assert agent.failed_updates == 0
    assert arrays(agent, "scales") == {"online": 1.0, "target": 1.0}


def test_the_noise_on_discrete_actions_is_halved():
    targets = {}
    for scale in (0.5, 2.0):
        agent, replay = scene("discrete", discrete_noise_scale=scale)
        update = observed_value_update(agent, replay, settings_for("discrete", discrete_noise_scale=scale))
        assert_values_as_reference(update)
        targets[scale] = update.y
    assert not np.allclose(targets[0.5], targets[2.0])


# --- shifts -----------------------------------------------------------------------------------------


def test_every_picture_has_a_shift_of_its_own():
    agent, replay = scene("continuous", batch_size=256, sizes=Sizes(1, 4, 4, 4, 4, 4, 4))
    update_encoder(agent, replay)
    agent.update(replay)
    model, value = (recording(agent).results[f"arrange_{kind}_noise"] for kind in ("encoder", "value"))
    shifts = torch.cat((model.now, *model.later.view(5, 256, 2), value.now, value.later), 1).T.double()
    assert all(set(column.tolist()) == set(range(9)) for column in shifts)
    columns = torch.cat((shifts, torch.stack((model.places, value.places))))
    related = torch.corrcoef(columns) - torch.eye(len(columns))
    assert related.abs().max() < 0.25  # 4 standard deviations


def changed(kind, which, after):
    """Losses and targets of an update whose noise is changed."""
    agent, replay = scene("continuous")
    recording(agent).interventions[f"arrange_{kind}_noise"] = lambda noise, *_: noise._replace(
        **{which: after(getattr(noise, which))}
    )
    settings = settings_for("continuous")
    if kind == "encoder":
        update = observed_encoder_update(agent, replay, settings)
        assert_encoder_as_reference(update)
        return {name: update.metrics[f"{name}_loss"] for name in MODEL_LOSSES}
    update = observed_value_update(agent, replay, settings)
    assert_values_as_reference(update)
    return {"value": update.metrics["value_loss"], "policy": update.metrics["policy_loss"], "y": update.y[0]}


@pytest.mark.parametrize(
    ("kind", "which", "expected"),
    [
        ("encoder", "now", {"dynamics", "reward", "done", "encoder"}),
        ("encoder", "later", {"dynamics", "encoder"}),
        ("value", "now", {"value", "policy"}),
        ("value", "later", {"value", "y"}),
        ("value", "policy_gumbel", set()),  # continuous actions take none
        ("value", "target_action", {"value", "y"}),
    ],
)
def test_each_random_number_has_its_own_effect_and_no_other(kind, which, expected):
    same = changed(kind, which, lambda numbers: numbers)
    other = changed(kind, which, lambda numbers: numbers.roll(1, 0))
    assert {name for name in same if same[name] != other[name]} == expected


# --- the optimisers ---------------------------------------------------------------------------------


def assert_steps_close(after, expected, gradients, learning_rate):
    """Adam divides by the size of the gradient: where that is rounding error, any step is right."""
    for name, array in expected.items():
        telling = np.abs(gradients[name]) > 1e-3 * np.abs(gradients[name]).max()
        close(after[name][telling], array[telling], rtol=0, atol=2e-3 * learning_rate + 1e-7)
        close(after[name], array, rtol=0, atol=3 * learning_rate)


@every_kind
@pytest.mark.parametrize(("reward", "weight_decay"), [(0.1, 1.0), (1e5, 1e-4)])
def test_value_updates_are_steps_of_adamw_and_only_the_values_gradient_is_clipped(kind, reward, weight_decay):
    # Large errors give every sample the same slope: only wide representations make a large gradient.
    agent, replay = scene(
        kind, reward=reward, weight_decay=weight_decay, clip_norm=0.5 if reward > 1 else 20.0
    )
    optimisers = {part: common.AdamW(3e-4, weight_decay) for part in ("core", "policy")}
    for _ in range(3):
        before = {part: arrays(agent, part) for part in optimisers}
        update = observed_value_update(agent, replay, settings_for(kind))
        clip_norm = agent.config.clip_norm
        assert (common.global_norm(update.gradients["core"]) > clip_norm) == (reward > 1)
        given = update.gradients | {"core": common.clipped(update.gradients["core"], clip_norm)}
        for part, optimiser in optimisers.items():
            learned = {name: array for name, array in before[part].items() if name in given[part]}
            expected = optimiser.step(learned, given[part])
            assert_steps_close(arrays(agent, part), expected, given[part], 3e-4)


@every_kind
@pytest.mark.parametrize("weight_decay", [1e-4, 1.0])
def test_encoder_updates_are_steps_of_adamw_with_the_gradient_as_it_comes(kind, weight_decay):
    agent, replay = scene(kind, weight_decay=weight_decay, dynamics_weight=1000.0)
    settings = replace(settings_for(kind), dynamics_weight=1000.0)
    optimisers = {part: common.AdamW(1e-4, weight_decay) for part in ("core", "model")}
    for _ in range(3):
        before = {part: arrays(agent, part) for part in optimisers}
        update = observed_encoder_update(agent, replay, settings)
        assert update.metrics["encoder_gradient_norm"] > 100
        for part, optimiser in optimisers.items():
            given = update.gradients[part]
            learned = {name: array for name, array in before[part].items() if name in given}
            assert_steps_close(arrays(agent, part), optimiser.step(learned, given), given, 1e-4)
