"""Every number of both kinds of update against hand numbers and the reference in float64 numpy."""

import math

import numpy as np
import pytest
import torch

from ogspr.agents.mrq import Sizes
from ogspr.agents.mrq.losses import model_losses, terminal_seen, unrolled
from ogspr.agents.mrq.networks import Prediction
from tests.agents.mrq import reference
from tests.agents.mrq.scene import compared_encoder, compared_values, networks, scene, settings_for
from tests.agents.scene import KINDS, LATE, arrays, assert_slopes_close, close, places_of_terminals
from tests.agents.states import differing, snapshot

every_kind = pytest.mark.parametrize("kind", KINDS)


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


def assert_encoder_as_reference(look, expected):
    names = ("dynamics", "reward", "done")
    assert look.losses.keys() == set(names)
    close([look.losses[name] for name in names], [expected.losses[name] for name in names])
    close(sum(look.weights[name] * look.losses[name] for name in names), expected.losses["encoder"])
    assert_slopes_close(look.slopes()["encoder"], expected.slopes["encoder"])


def assert_values_as_reference(look, expected):
    assert look.losses.keys() == {"value", "policy"}
    for name in ("value", "policy"):
        close(look.losses[name], expected.losses[name])
        assert_slopes_close(look.slopes()[name], expected.slopes[name])
    close(look.result("n_step_return"), expected.returns)
    close(look.result("bootstrapped_target"), expected.y)
    close(look.found.priorities["value"], expected.priorities)
    close(look.found.numbers["target_mean"], expected.y.mean())


@every_kind
def test_every_number_of_an_encoder_update_with_terminals_everywhere(kind):
    look, expected = compared_encoder(scene(kind, batch_size=48), settings_for(kind))
    assert places_of_terminals(expected.window) == {0, 1, 2, 3, 4, None}
    assert_encoder_as_reference(look, expected)
    assert not look.found.priorities


@every_kind
def test_every_number_of_a_value_update_with_terminals_everywhere(kind):
    look, expected = compared_values(scene(kind, batch_size=48), settings_for(kind))
    assert places_of_terminals(expected.window) == {0, 1, 2, None}
    assert (expected.priorities == 1).any()  # the minimum
    assert (expected.priorities > 1).any()
    assert_values_as_reference(look, expected)


@every_kind
def test_every_number_at_the_sizes_of_the_paper(kind):
    subject = scene(kind, side=84, sizes=Sizes(), batch_size=8)
    assert_encoder_as_reference(*compared_encoder(subject, settings_for(kind)))
    assert_values_as_reference(*compared_values(subject, settings_for(kind)))


def test_other_horizons_and_weights():
    numbers = {"horizon": 2, "n_step": 1, "dynamics_weight": 0.5, "reward_weight": 2.0, "done_weight": 3.0}
    subject, settings = scene(**numbers), settings_for(**numbers)
    assert_encoder_as_reference(*compared_encoder(subject, settings))
    assert_values_as_reference(*compared_values(subject, settings))


def slope(loss_at, slopes, seed=0):
    """The slope in a random direction: by central differences, and as the gradient says."""
    rng = np.random.default_rng(seed)
    way = {name: rng.standard_normal(array.shape) for name, array in slopes.items()}
    ends = [loss_at({name: step * d for name, d in way.items()}) for step in (1e-6, -1e-6)]
    return (ends[0] - ends[1]) / 2e-6, sum((slopes[name] * d).sum() for name, d in way.items())


@every_kind
def test_the_gradients_are_the_slopes_of_the_reference(kind):
    """By central differences: nothing of torch, and nothing of the agent, has a say in the left side."""
    subject, settings = scene(kind), settings_for(kind)
    _, model = compared_encoder(subject, settings)
    _, value = compared_values(subject, settings)

    def encoder_loss(nudge):
        parts = {"core": {}, "model": {}}
        for name, step in nudge.items():
            part, _, rest = name.partition(".")
            parts["model" if part == "model" else "core"][rest if part == "model" else name] = step
        nets = networks(subject.agent, parts)
        return reference.encoder_losses(nets, model.window, model.chance, model.targets, settings)["encoder"]

    def value_loss(name, part, prefix=""):
        def loss(nudge):
            nets = networks(subject.agent, {part: {f"{prefix}{n}": step for n, step in nudge.items()}})
            return reference.value_losses(nets, value.window, value.chance, value.y, settings)[0][name]

        return loss

    for loss, slopes in (
        (encoder_loss, model.slopes["encoder"]),
        (value_loss("value", "core", "long_term."), value.slopes["value"]),
        (value_loss("policy", "policy"), value.slopes["policy"]),
    ):
        measured, expected = slope(loss, slopes)
        assert measured == pytest.approx(expected, rel=1e-6)


# --- terminals, rewards, scales ---------------------------------------------------------------------


def test_terminals_are_learned_from_the_first_one_on():
    subject = scene()
    flags = subject.replay.numbers[:, -1].clone()
    for terminals, seen in ((False, False), (True, True), (False, True)):
        subject.replay.numbers[:, -1] = flags if terminals else 0.0
        done_before = subject.networks.model.outputs.weight[-1].detach().clone()
        look, expected = compared_encoder(subject, settings_for(terminal_seen=seen))
        assert bool(expected.window.terminated.any()) == terminals
        assert_encoder_as_reference(look, expected)
        assert look.losses["done"] > 0
        subject.learn("encoder")
        moved = (subject.networks.model.outputs.weight[-1] - done_before).abs().max() > 1e-6
        assert bool(moved) == seen


@every_kind
def test_rewards_beyond_the_bins_count_as_the_outermost_ones(kind):
    look, expected = compared_encoder(scene(kind, reward=1e6), settings_for(kind))
    assert np.abs(expected.window.rewards).max() > 1e5
    assert_encoder_as_reference(look, expected)


def test_values_learn_after_the_burst_in_units_of_the_mean_absolute_reward():
    """From targets of before the burst, which are in the units of then."""
    subject = scene(target_period=1, encoder_learning_rate=0.1)
    # First in units of 4, from values in units of 1; then in units of 1/2, from values in units of 4.
    for rewards, scales in ((4.0, (4.0, 1.0)), (-0.5, (0.5, 4.0))):
        subject.replay.numbers[:, -2] = rewards  # every step
        before, made = snapshot(subject.agent, "core"), []
        for kind in subject.agent.method.schedule(1, LATE, subject.replay):
            if kind == "value":
                assert_values_as_reference(*compared_values(subject, settings_for(scales=scales)))
            subject.learn(kind)
            made.append(kind)
        assert made == ["encoder", "value"]
        targets = snapshot(subject.agent, "target_core")
        assert not differing({f"target_{name}": tensor for name, tensor in before.items()}, targets)
        moved = (
            arrays(subject.agent, "core")["encoder.head.weight"] - before["core.encoder.head.weight"].numpy()
        )
        assert np.abs(moved).max() > 0.01


def test_without_any_reward_the_unit_is_one():
    subject = scene(target_period=1)
    subject.replay.numbers[:, -2] = 0.0
    subject.agent.update(subject.replay, LATE)
    assert subject.agent.failed_updates == 0
    assert arrays(subject.agent, "scales") == {"online": 1.0, "target": 1.0}


def test_the_noise_on_discrete_actions_is_halved():
    targets = {}
    for scale in (0.5, 2.0):
        subject = scene("discrete", discrete_noise_scale=scale)
        look, expected = compared_values(subject, settings_for("discrete", discrete_noise_scale=scale))
        assert_values_as_reference(look, expected)
        targets[scale] = expected.y
    assert not np.allclose(targets[0.5], targets[2.0])


# --- what is left to chance -------------------------------------------------------------------------


def outcome(kind, change):
    """Losses and targets of an update whose noise is changed."""
    if kind == "encoder":
        look, expected = compared_encoder(scene(), settings_for(), change)
        assert_encoder_as_reference(look, expected)
        return look.losses
    look, expected = compared_values(scene(), settings_for(), change)
    assert_values_as_reference(look, expected)
    return look.losses | {"y": look.result("bootstrapped_target").tolist()}


@pytest.mark.parametrize(
    ("kind", "which", "expected"),
    [
        ("encoder", "now", {"dynamics", "reward", "done"}),
        ("encoder", "later", {"dynamics"}),
        ("value", "now", {"value", "policy"}),
        ("value", "later", {"value", "y"}),
        ("value", "policy_gumbel", set()),  # continuous actions take none
        ("value", "target_action", {"value", "y"}),
    ],
)
def test_each_random_number_has_its_own_effect_and_no_other(kind, which, expected):
    same = outcome(kind, lambda noise: noise)
    other = outcome(kind, lambda noise: noise._replace(**{which: getattr(noise, which).roll(1, 0)}))
    assert {name for name in same if same[name] != other[name]} == expected
