"""Predictors on data whose losses are known."""

import numpy as np
import pytest
import torch

from ogspr.analysis.probing import NEXT_STATE, STATE
from ogspr.errors import UserError
from ogspr.probe.probing import (
    EncodedEpisode,
    HeadTraining,
    Loss,
    _tasks,
    encoded,
    held_out_episodes,
    probe_all,
)
from ogspr.probe.recording import Recording

TRAINING = HeadTraining(updates=6000, batch_size=128)
EPISODES, STEPS, LATENT, STATES = 40, 1000, 6, 3
NOISE = 0.4  # standard deviation


def known_episodes(seed=0, change=lambda h: h):
    """x_t = change(h_t) A + noise; z_t is h_{t+1} without its last number."""
    rng = np.random.default_rng(seed)
    mixing = rng.uniform(0.2, 0.5, (LATENT, STATES))
    episodes = []
    for _ in range(EPISODES):
        h = rng.normal(size=(STEPS + 1, LATENT))
        x = change(h) @ mixing + NOISE * rng.normal(size=(STEPS + 1, STATES))
        h_tensor, z = torch.from_numpy(h[:-1]).float(), torch.from_numpy(h[1:, :-1].copy()).float()
        episodes.append(EncodedEpisode(h_tensor, z, 7 + 30 * x))  # units and origin are normalised away
    return episodes, mixing


def test_the_loss_of_linear_structure_is_that_of_its_noise():
    episodes, mixing = known_episodes()
    found = probe_all([episodes], TRAINING, 0)[0]
    variance = (mixing**2).sum(0) + NOISE**2
    state = float((NOISE**2 / variance).sum())
    next_state = float(((NOISE**2 + mixing[-1] ** 2) / variance).sum())  # what z lacks is noise, too
    # A mean of N squared normal numbers is off by sqrt(2 / N); four of these. Dimensions may move together.
    tolerance = 4 * np.sqrt(2 / (EPISODES // 5 * STEPS))
    assert found[STATE].held_out == pytest.approx(state, rel=tolerance)
    assert found[NEXT_STATE].held_out == pytest.approx(next_state, rel=tolerance)
    assert abs(next_state / state - 1) > 3 * tolerance  # so that one cannot be taken for the other
    assert found[STATE].training == pytest.approx(state, rel=tolerance)
    assert found[STATE].per_dimension == found[STATE].held_out / STATES


def test_what_is_there_but_not_linear_is_not_found():
    episodes, _ = known_episodes(change=lambda h: h**2)
    found = probe_all([episodes], TRAINING, 0)[0]
    for loss in found.values():
        assert loss.per_dimension == pytest.approx(1.0, abs=0.1)  # the variance: nothing is explained


def test_a_set_does_not_depend_on_those_beside_it():
    one, other = (known_episodes(seed)[0][:10] for seed in (0, 1))
    short = HeadTraining(200, 16)
    together = probe_all([one, other], short, 3)
    for found, alone in zip(together, (one, other), strict=True):
        for name, loss in probe_all([alone], short, 3)[0].items():
            assert found[name].held_out == pytest.approx(loss.held_out, rel=1e-5)


def test_same_seed_same_result():
    episodes = known_episodes()[0][:5]
    once, again, other = (probe_all([episodes], HeadTraining(50, 8), seed) for seed in (4, 4, 5))
    assert once == again
    assert once != other


def test_progress_reaches_one():
    told = []
    probe_all([known_episodes()[0][:2]], HeadTraining(700, 2), 0, told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


@pytest.mark.parametrize("episodes", [2, 3, 5, 10, 37])
def test_a_fifth_is_held_out_and_never_all(episodes):
    held_out = held_out_episodes(episodes, 0)
    assert held_out < set(range(episodes))
    assert len(held_out) == max(1, round(episodes / 5))


def test_chance_decides_which_are_held_out():
    assert len({held_out_episodes(50, seed) for seed in range(10)}) == 10


@pytest.mark.parametrize("episodes", [0, 1])
def test_too_few_episodes_are_refused(episodes):
    with pytest.raises(UserError, match=f"at least 2 episodes.*got {episodes}"):
        held_out_episodes(episodes, 0)


def marked_episode(number, steps):
    """All that is in it tells where it comes from."""
    place = torch.arange(steps)[:, None]
    h = torch.cat((torch.full((steps, 1), number), place), 1).float()
    x = 100.0 * number + np.arange(steps + 1)[:, None] ** 2
    return EncodedEpisode(h, h + 0.5, x)


def test_no_episode_is_in_both_parts_and_states_stand_beside_their_representation():
    lengths = (4, 7, 3, 5, 6, 4, 5)
    episodes = [marked_episode(number, steps) for number, steps in enumerate(lengths)]
    held_out = held_out_episodes(len(lengths), 2)
    learned = np.concatenate([e.proprioception for n, e in enumerate(episodes) if n not in held_out])
    mean, deviation = learned.mean(), learned.std()
    for name, later, offset in ((STATE, 0, 0.0), (NEXT_STATE, 1, 0.5)):
        task = _tasks(episodes, 2)[name]
        for part, belongs in ((task.held_out, True), (task.training, False)):
            numbers, places = (part.inputs - offset).numpy().T
            assert {int(number) for number in numbers} == {
                number for number in range(len(lengths)) if (number in held_out) is belongs
            }
            assert len(part.inputs) == sum(lengths[number] for number in set(numbers.astype(int)))
            x = 100.0 * numbers + (places + later) ** 2
            np.testing.assert_allclose(part.targets[:, 0], (x - mean) / deviation, rtol=1e-5, atol=1e-6)


def test_a_split_by_steps_would_find_what_a_split_by_episodes_does_not():
    """The representation only says which episode it is, and every episode has a state of its own."""
    rng = np.random.default_rng(0)
    count, steps = 20, 30
    episodes = []
    for number in range(count):
        code = torch.zeros(steps, count)
        code[:, number] = 1.0
        episodes.append(EncodedEpisode(code, code, np.tile(rng.normal(size=4), (steps + 1, 1))))
    single_steps = [
        EncodedEpisode(e.h[t : t + 1], e.z[t : t + 1], e.proprioception[t : t + 2])
        for e in episodes
        for t in range(steps)
    ]
    training = HeadTraining(3000, 64, learning_rate=1e-2)
    by_episode, by_step = (probe_all([each], training, 0)[0] for each in (episodes, single_steps))
    for name in (STATE, NEXT_STATE):
        assert by_step[name].per_dimension < 0.01
        assert by_episode[name].per_dimension > 0.5
        assert by_episode[name].training < 0.01 * by_episode[name].held_out


class Echo:
    """Shows sums of pictures, and actions."""

    def __init__(self):
        self.sizes = []

    def encode(self, observations, actions):
        self.sizes.append(len(observations))
        h = torch.from_numpy(observations.reshape(len(observations), -1).sum(1, dtype=np.float32))[:, None]
        return h, torch.from_numpy(actions)


def test_long_episodes_are_encoded_in_parts():
    steps, stack = 1100, 2
    frames = np.arange(steps + stack - 1).astype(np.uint8)[:, None, None, None]
    actions = np.arange(steps, dtype=np.float32)[:, None]
    recording = Recording(frames, actions, np.zeros((steps + 1, 1)), 0.0)
    echo = Echo()
    episode = encoded(echo, recording)
    assert echo.sizes == [512, 512, 76]
    single = frames.astype(np.float32).ravel()
    assert np.array_equal(episode.h[:, 0], single[:-1] + single[1:])
    assert np.array_equal(episode.z, actions)


def test_losses_a_dimension():
    assert Loss(held_out=6.0, training=3.0, dimensions=4).per_dimension == 1.5
