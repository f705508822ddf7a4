"""Atari against the emulator itself."""

import hashlib

import cv2
import numpy as np
import pytest
from ale_py import ALEInterface, roms

from ogspr.envs import EnvOptions, make
from ogspr.envs.atari import PROTOCOLS
from ogspr.envs.tasks import atari_games
from ogspr.reference import paper_scores

NOOP, FIRE = 0, 1


def emulator(rom: str):
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(roms.get_rom_path(rom)))
    ale.reset_game()
    return ale


def shrunk(*screens):
    return cv2.resize(np.maximum.reduce(screens), (84, 84), interpolation=cv2.INTER_AREA)


def play_out(env, rng, most=100_000):
    """Plays to the end of the episode; the last time step and all rewards and scores."""
    step = env.reset()
    rewards, scores = [], []
    while not step.last and len(rewards) < most:
        step = env.step(env.spec.actions.sample(rng))
        rewards.append(step.reward)
        scores.append(step.score)
    return step, rewards, scores


def test_frames_and_rewards_are_the_emulators():
    env = make("atari:MsPacman", seed=0, options=EnvOptions(noops=0))
    ale = emulator("ms_pacman")
    np.testing.assert_array_equal(env.reset().observation[-1], shrunk(ale.getScreenGrayscale()))
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(0)
    score = 0.0
    for _ in range(120):  # a game takes longer
        action = int(rng.integers(len(actions)))
        step = env.step(np.asarray(action))
        score += step.score
        reward, screens = 0, []
        for _ in range(4):
            reward += ale.act(actions[action])
            screens.append(ale.getScreenGrayscale())
        np.testing.assert_array_equal(step.observation[-1], shrunk(*screens[-2:]))
        assert (step.score, step.frames) == (reward, 4)
    assert score > 0, "the test saw no reward"


def test_a_lost_life_neither_ends_the_episode_nor_restarts_the_game():
    env = make("atari:Breakout", seed=0)
    env.reset()
    ale = env._source._ale
    lives, frames_seen = ale.lives(), []
    assert lives == 5
    while ale.lives() > 2:
        step = env.step(np.asarray(FIRE))
        frames_seen.append(ale.getEpisodeFrameNumber())
        assert not step.last
    assert frames_seen == sorted(frames_seen), "the frame counter of the episode went back"


def test_the_terminal_frame_is_the_true_last_screen():
    env = make("atari:Breakout", seed=0)
    rng = np.random.default_rng(0)
    source = env._source
    short = []
    for _ in range(12):
        step, _, _ = play_out(env, rng)
        assert (step.terminated, step.truncated) == (True, False)
        last = source._ale.getScreenGrayscale()
        np.testing.assert_array_equal(source._screens[1], last)
        np.testing.assert_array_equal(step.observation[-1], shrunk(source._screens[0], last))
        short.append(step.frames < 4)
    assert any(short), "no episode ended inside a step; the test saw only the easy case"


def test_an_early_end_shows_the_maximum_of_the_last_two_screens():
    """Frame by frame beside a second emulator, through a game that ends inside a step."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        env = make("atari:Breakout", seed=seed, options=EnvOptions(noops=0))
        env.reset()
        ale = emulator("breakout")
        actions = ale.getMinimalActionSet()
        screens = [ale.getScreenGrayscale()] * 2
        step = None
        while step is None or not step.last:
            action = int(rng.integers(len(actions)))
            step = env.step(np.asarray(action))
            for _ in range(step.frames):
                ale.act(actions[action])
                screens = [screens[1], ale.getScreenGrayscale()]
        assert ale.game_over()
        np.testing.assert_array_equal(step.observation[-1], shrunk(*screens))
        if step.frames < 4:
            return
    pytest.fail("no game ended inside a step")


def test_rewards_are_signs_in_training_only():
    rng = np.random.default_rng(0)
    _, rewards, scores = play_out(make("atari:MsPacman", seed=0, training=True), rng)
    assert set(rewards) <= {-1.0, 0.0, 1.0}
    assert max(scores) > 1.0
    assert rewards == [float(np.sign(score)) for score in scores]
    _, rewards, scores = play_out(make("atari:MsPacman", seed=0), np.random.default_rng(0))
    assert rewards == scores
    assert max(rewards) > 1.0


def test_the_frame_cap_is_a_truncation(monkeypatch):
    from dataclasses import replace

    monkeypatch.setitem(PROTOCOLS, "atari100k", replace(PROTOCOLS["atari100k"], frame_cap=402, noops=0))
    env = make("atari:Pong", seed=0)
    step, rewards, _ = play_out(env, np.random.default_rng(0))
    assert (step.truncated, step.terminated) == (True, False)
    assert len(rewards) == env.spec.episode_steps == 101
    assert step.frames == 2


def test_no_sticky_actions_by_default_and_sticky_ones_by_machado2018():
    def frames(options, seed):
        env = make("atari:Breakout", seed=seed, options=options)
        observations = [env.reset().observation]
        rng = np.random.default_rng(0)
        observations += [env.step(env.spec.actions.sample(rng)).observation for _ in range(80)]
        return np.stack(observations)

    plain = EnvOptions(noops=0)
    np.testing.assert_array_equal(frames(plain, 1), frames(plain, 2))
    sticky = EnvOptions(atari_protocol="machado2018")
    assert not np.array_equal(frames(sticky, 1), frames(sticky, 2))


def test_protocols_are_stored_with_the_environment():
    env = make("atari:Pong", seed=0)
    assert env.spec.protocol == {
        "suite": "atari",
        "preset": "atari100k",
        "action_repeat": 4,
        "sticky_actions": 0.0,
        "full_action_set": False,
        "noops": 30,
        "frame_cap": 108_000,
        "sign_rewards": False,  # this one is not for training
        "terminal_on_life_loss": False,
        "fire": False,
        "image_size": 84,
        "frame_stack": 4,
    }
    trained = {
        given: make("atari:Pong", seed=0, training=True, options=EnvOptions(sign_rewards=given))
        for given in (None, True, False)
    }
    assert [env.spec.protocol["sign_rewards"] for env in trained.values()] == [True, True, False]
    machado = make("atari:Pong", seed=0, options=EnvOptions(atari_protocol="machado2018")).spec
    assert machado.protocol["sticky_actions"] == 0.25
    assert machado.actions.count == 18


def test_noops_make_starts_differ_and_stay_in_their_bound():
    env = make("atari:Pong", seed=0)
    starts = set()
    for _ in range(40):
        env.reset()
        starts.add(env._source._ale.getEpisodeFrameNumber())
    assert min(starts) >= 1
    assert max(starts) <= 30
    assert len(starts) > 10


@pytest.mark.parametrize(
    ("game", "expected"),
    [
        ("Pong", "fce5d9c833cd55a1"),
        ("Breakout", "a4cdaede1a6fa3d6"),
        ("MsPacman", "8899fa07498502fa"),
        ("Qbert", "49dcdd7da40272f4"),
    ],
)
def test_frames_have_not_changed(game, expected):
    """A hundred steps of each game as they were when this was written."""
    env = make(f"atari:{game}", seed=42)
    rng = np.random.default_rng(42)
    digest = hashlib.sha256(env.reset().observation.tobytes())
    for _ in range(100):
        digest.update(env.step(env.spec.actions.sample(rng)).observation.tobytes())
    assert digest.hexdigest()[:16] == expected


def test_the_table_of_games_is_ale_pys():
    for game in atari_games():
        assert len(emulator(game.rom).getMinimalActionSet()) == game.minimal_actions, game.name


def test_the_papers_26_games_are_known():
    paper = {name for name in paper_scores() if name.startswith("atari:")}
    assert len(paper) == 26
    assert paper <= {f"atari:{game.name}" for game in atari_games()}


@pytest.mark.parametrize("name", sorted(name for name in paper_scores() if name.startswith("atari:")))
def test_every_game_of_the_paper_runs(name):
    env = make(name, seed=0)
    rng = np.random.default_rng(0)
    first = step = env.reset()
    count = 0
    while np.array_equal(step.observation[-1], first.observation[-1]):
        assert count < 150 and not step.last, "the picture never changes"
        step = env.step(env.spec.actions.sample(rng))
        count += 1
