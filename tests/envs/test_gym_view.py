"""Our environments in Gymnasium's clothes: its own checker, and step for step the same as without."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ogspr.envs import EnvOptions, make
from ogspr.envs.gym_view import make_gym
from ogspr.errors import UserError

SMALL = EnvOptions(image_size=36)
TASKS = ("atari:Breakout", "tests.helpers.worlds:counter", "gym:CartPole-v1")


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
@pytest.mark.parametrize("task", TASKS)
def test_gymnasiums_own_checker_has_no_complaint(task, render_mode):
    env = make_gym(task, options=SMALL, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Made by us and not by gymnasium.make, so there is no id to make another of.
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(env, skip_render_check=render_mode is None)
    env.close()


@pytest.mark.usefixtures("opengl")
def test_gymnasiums_own_checker_has_no_complaint_of_dmc():
    env = make_gym("dmc:cartpole-swingup", options=SMALL, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(env)
    env.close()


@pytest.mark.parametrize("task", TASKS)
def test_it_is_the_same_environment(task):
    ours = make(task, seed=3, training=True, options=SMALL)
    theirs = make_gym(task, seed=3, training=True, options=SMALL)
    observation, info = theirs.reset()
    step = ours.reset()
    rng = np.random.default_rng(0)
    for _ in range(60):
        assert np.array_equal(observation, step.observation)
        assert info["score"] == step.score
        assert info["lost_life"] == step.lost_life
        if step.last:
            step, (observation, info) = ours.reset(), theirs.reset()
            continue
        action = ours.spec.actions.sample(rng)
        step = ours.step(action)
        observation, reward, terminated, truncated, info = theirs.step(action)
        assert (reward, terminated, truncated) == (step.reward, step.terminated, step.truncated)
    ours.close()
    theirs.close()


def test_a_seed_begins_anew_and_none_goes_on():
    env = make_gym("atari:Pong")
    first, _ = env.reset(seed=5)
    later = [env.reset()[0] for _ in range(3)]
    again, _ = env.reset(seed=5)
    assert np.array_equal(first, again)
    assert not all(np.array_equal(first, other) for other in later)  # other numbers of no-ops
    env.close()


def test_wrappers_and_vectors_of_gymnasium_take_it():
    def recorded():
        return gymnasium.wrappers.RecordEpisodeStatistics(make_gym("tests.helpers.worlds:counter"))

    vector = gymnasium.vector.SyncVectorEnv([recorded, recorded])
    observations, _ = vector.reset(seed=[1, 2])
    assert observations.shape == (2, *vector.single_observation_space.shape)
    lengths = []
    for _ in range(12):
        *_, infos = vector.step(np.ones(2, np.int64))
        lengths += [list(infos["episode"]["l"])] if "episode" in infos else []
    assert lengths == [[10, 10]]
    vector.close()


def test_a_picture_is_the_newest_frame_in_colour():
    env = make_gym("atari:Breakout", render_mode="rgb_array")
    observation, _ = env.reset()
    picture = env.render()
    assert picture.shape == (84, 84, 3)
    assert np.array_equal(picture[..., 1], observation[-1])
    env.close()


def test_other_render_modes_are_refused():
    with pytest.raises(UserError, match="render mode must be rgb_array or None, got 'human'"):
        make_gym("atari:Breakout", render_mode="human")
