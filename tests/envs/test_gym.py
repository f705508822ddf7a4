"""Any Gymnasium environment, and a user's own."""

import contextlib

import gymnasium
import numpy as np
import pytest

from ogspr.envs import EnvOptions, gym, make
from ogspr.errors import UserError
from ogspr.types import ContinuousActions, DiscreteActions


def world(name: str, **options):
    return make(f"tests.helpers.worlds:{name}", seed=0, options=EnvOptions(**options))


def test_rendered_pictures_serve_where_the_observation_is_none():
    env = make("gym:CartPole-v1", seed=0)
    step = env.reset()
    assert step.observation.shape == (9, 84, 84)
    assert len(np.unique(step.observation)) > 2
    assert env.spec.actions == DiscreteActions(2)
    assert env.spec.episode_steps == 500
    env.close()


@pytest.mark.usefixtures("opengl")
def test_a_mujoco_environment_of_gymnasium_draws():
    env = make("gym:InvertedPendulum-v5", seed=0)
    assert len(np.unique(env.reset().observation)) > 2
    assert env.spec.renderer
    assert "mujoco" in env.spec.versions
    env.close()


@pytest.mark.usefixtures("opengl")
def test_warnings_of_mujoco_are_written_to_no_file(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MUJOCO_LOG.TXT").symlink_to(tmp_path / "mine")
    with contextlib.closing(make("gym:InvertedPendulum-v5", seed=0)) as env:
        env.reset()
        physics = env._source._env.unwrapped
        physics.data.qvel[:] = 1e20
        physics.do_simulation(physics.data.ctrl, 1)
    assert "The simulation is unstable" in caplog.text
    assert not (tmp_path / "mine").exists()


def test_grey_pictures_are_stacked_by_four_and_terminals_reported():
    env = world("counter")
    step = env.reset()
    assert step.observation.shape == (4, 84, 84)
    for count in range(1, 11):
        step = env.step(np.asarray(1))
        assert step.observation[-1, 0, 0] == count
        assert step.reward == step.score == count
    assert (step.terminated, step.truncated) == (True, False)
    assert step.observation[:, 0, 0].tolist() == [7, 8, 9, 10]


def test_action_repeat_adds_rewards_and_stops_at_the_end():
    env = world("counter", action_repeat=4)
    env.reset()
    rewards = [env.step(np.asarray(0)).reward for _ in range(3)]
    assert rewards == [1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10]


def test_pictures_are_resized():
    env = world("counter", image_size=21)
    assert env.reset().observation.shape == (4, 21, 21)


def test_discrete_actions_start_where_the_space_starts():
    env = world("counter")
    env.reset()
    env.step(np.asarray(0))
    assert env._source._env.last_action == -1
    with pytest.raises(ValueError, match=r"0\.\.2"):
        env.step(np.asarray(3))


def test_continuous_actions_are_scaled_and_shaped():
    env = world("matrix_actions")
    assert env.spec.actions == ContinuousActions(2)
    env.reset()
    env.step(np.array([-1.0, 0.5], np.float32))
    np.testing.assert_allclose(env._source._env.last_action, [[0.0, 5.0]])


def test_scaled_actions_stay_in_their_box():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, high = np.sort(rng.normal(0, 10, (2, 3)).astype(np.float32), axis=0)
        space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        to_native, actions = gym._action_conversion("test", space)
        for corner in (np.ones(3, np.float32), -np.ones(3, np.float32), actions.sample(rng)):
            assert space.contains(to_native(corner))


def test_an_infinite_reward_cuts_the_episode():
    env = world("infinite_reward")
    env.reset()
    steps = [env.step(np.asarray(0)) for _ in range(3)]
    assert [step.truncated for step in steps] == [False, False, True]
    assert "non-finite reward inf" in steps[-1].fault
    env.reset()
    assert env.step(np.asarray(0)).reward == 1.0


@pytest.mark.parametrize("name", ["float_pictures", "wrong_shape"])
def test_pictures_that_break_their_declaration_are_refused(name):
    with pytest.raises(UserError, match="returned an image of"):
        world(name)


def test_atari_ids_are_led_to_our_name_for_them():
    with pytest.raises(UserError, match="Atari games are atari:<Game>"):
        make("gym:ALE/Nonesuch-v5", seed=0)


def test_gymnasiums_module_prefix_works():
    env = make("gym:gymnasium.envs.classic_control:CartPole-v1", seed=0)
    assert env.spec.actions == DiscreteActions(2)
    env.close()


def test_a_factory_may_ask_for_the_seed():
    env = make("tests.helpers.worlds:counter_with_seed", seed=17)
    assert env._source._env.given_seed == 17


def test_a_gymnasium_environment_with_methods_of_our_names_is_still_one():
    env = world("with_own_snapshot")
    assert env.reset().observation.shape == (4, 84, 84)


def test_a_missing_library_for_drawing_is_a_users_problem_told_in_a_line():
    with pytest.raises(UserError, match="cannot be rendered: pygame is not installed"):
        world("needs_a_library")


def test_a_missing_module_inside_a_users_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "yaml_missing_x_env.py").write_text("import yaml_missing_x")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="yaml_missing_x_env needs the module yaml_missing_x,"):
        make("yaml_missing_x_env:make", seed=0)


def test_a_factory_may_return_an_environment_of_this_package():
    env = make("tests.envs.test_gym:own_environment", seed=3)
    assert env.spec.name == "atari:Pong"


def own_environment(seed: int):
    return make("atari:Pong", seed=seed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dict_actions", "action space Dict.* cannot be used"),
        ("unbounded_actions", "infinite bounds"),
        ("vector_observations", "is not an image"),
        ("not_an_environment", "returned a int"),
        ("contuer", "did you mean counter"),
    ],
)
def test_what_cannot_be_used_is_named(name, message):
    with pytest.raises(UserError, match=message):
        world(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:CartPol-v1", "CartPole-v1"),
        ("nowhere.at_all:make", "unknown suite or module"),
        ("dcm:walker-walk", "did you mean dmc"),
        ("dmc:walker-wlak", "walker-walk"),
        ("atari:Pnog", "Pong"),
        ("walker-walk", "is not an environment name"),
        ("dmc:", "is not an environment name"),
        (".relative:make", "unknown suite or module"),
        ("gym:zzzzqqq", "nothing similar is known"),
    ],
)
def test_misspelt_names_get_suggestions(name, message):
    with pytest.raises(UserError, match=message):
        make(name, seed=0)


@pytest.mark.parametrize(
    "options",
    [{"image_size": 0}, {"image_size": 40000}, {"frame_stack": -1}, {"action_repeat": 0}, {"camera": -1}],
)
def test_impossible_sizes_are_refused(options):
    with pytest.raises(UserError, match="must be"):
        EnvOptions(**options)


def test_options_that_would_do_nothing_are_refused():
    with pytest.raises(UserError, match="option camera does not apply to atari"):
        make("atari:Pong", seed=0, options=EnvOptions(camera=1))
