"""Lost lives and FIRE in Atari games, against the emulator itself, frame by frame."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from ale_py import ALEInterface, roms

from ogspr.envs import EnvOptions, ResilientEnvironment, check_task, launch, make
from ogspr.envs.atari import PROTOCOLS
from ogspr.errors import UserError
from ogspr.records.tree import load_tree, save_tree
from tests.envs.test_atari import shrunk
from tests.helpers.trajectories import SNAPSHOT, fingerprint

NOOP, FIRE = 0, 1
REPEAT = 4
AUTHORS = EnvOptions(atari_protocol="ogspr")
NO_NOOPS = replace(AUTHORS, noops=0)


class Console:
    """The emulator, driven by hand; counts what the environment should count."""

    def __init__(self, rom: str) -> None:
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", 0)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(str(roms.get_rom_path(rom)))
        self.ale.reset_game()
        self.buttons = self.ale.getMinimalActionSet()
        self.screens = [self.ale.getScreenGrayscale()] * 2
        self.score = 0

    def hold(self, button: int, frames: int = REPEAT) -> int:
        """What it earned; ends with the game."""
        before = self.score
        for _ in range(frames):
            if not self.ale.game_over():
                self.score += self.ale.act(button)
                self.screens = [self.screens[1], self.ale.getScreenGrayscale()]
        return self.score - before

    @property
    def picture(self):
        return shrunk(*self.screens)


def random_game(env, rng):
    """Every step of a game."""
    step = env.reset()
    while not step.last:
        step = env.step(env.spec.actions.sample(rng))
        yield step


def test_a_lost_life_is_terminal_for_the_learner_while_the_game_goes_on():
    env, console = make("atari:Breakout", seed=0, training=True, options=NO_NOOPS), Console("breakout")
    rng, score, lost, fire_due = np.random.default_rng(0), 0.0, 0, False
    console.hold(FIRE)
    step = env.reset()
    while not step.last:
        action, lives = int(rng.integers(4)), console.ale.lives()
        step = env.step(np.asarray(action))
        earned = console.hold(FIRE) if fire_due else 0
        earned += console.hold(console.buttons[action])
        fire_due = 0 < console.ale.lives() < lives
        assert step.lost_life == fire_due
        assert step.terminal == (fire_due or console.ale.game_over())
        assert (step.terminated, step.truncated) == (console.ale.game_over(), False)
        assert (step.score, step.reward) == (earned, np.sign(earned))
        np.testing.assert_array_equal(step.observation[-1], console.picture)
        score, lost = score + step.score, lost + step.lost_life
    assert console.ale.game_over()
    assert score == console.score > 0
    assert lost == 4  # of five lives; the fifth is the end of the game


def test_the_stack_of_frames_goes_on_over_a_lost_life():
    env, before = make("atari:Breakout", seed=0, training=True, options=AUTHORS), None
    for step in random_game(env, np.random.default_rng(0)):
        if before is not None:
            np.testing.assert_array_equal(step.observation[:-1], before.observation[1:])
        before = step


@pytest.mark.parametrize("options", [AUTHORS, EnvOptions(life_loss=True), EnvOptions(fire=True)])
def test_evaluation_never_hears_of_lost_lives(options):
    env = make("atari:Breakout", seed=0, options=options)
    steps = list(random_game(env, np.random.default_rng(0)))
    assert env._source._ale.game_over()
    assert [step.terminal for step in steps] == [False] * (len(steps) - 1) + [True]
    assert not any(step.lost_life for step in steps)
    assert env.spec.protocol["terminal_on_life_loss"] is False
    assert env.spec.protocol["fire"] is (options == AUTHORS or bool(options.fire))


def test_nobody_hears_of_lost_lives_or_fires_by_the_other_protocols():
    """Machado et al. advise against it, so the preset of OG-SPR with their protocol must not do it either."""
    for preset in PROTOCOLS.keys() - {"ogspr"}:
        env = make("atari:Breakout", seed=0, training=True, options=EnvOptions(atari_protocol=preset))
        assert not any(step.lost_life for step in random_game(env, np.random.default_rng(0)))
        assert (env.spec.protocol["terminal_on_life_loss"], env.spec.protocol["fire"]) == (False, False)


@pytest.mark.parametrize("training", [True, False])
def test_fire_starts_the_ball_without_the_agent(training):
    """An agent that does nothing loses all its lives; without FIRE it would wait for ever."""
    env, console = make("atari:Breakout", seed=0, training=training, options=NO_NOOPS), Console("breakout")
    step, fired = env.reset(), 1
    console.hold(FIRE)
    # What a reset shows is the last screen alone, as after no-ops.
    np.testing.assert_array_equal(step.observation[-1], shrunk(console.screens[1]))
    fire_due = False
    while not step.last:
        lives = console.ale.lives()
        step = env.step(np.asarray(NOOP))
        assert step.frames == (2 * REPEAT if fire_due else REPEAT) or step.last
        if fire_due:
            console.hold(FIRE)
            fired += 1
        console.hold(NOOP)
        assert env._source._ale.lives() == console.ale.lives()
        np.testing.assert_array_equal(step.observation[-1], console.picture)
        fire_due = 0 < console.ale.lives() < lives
    assert console.ale.game_over()
    assert fired == 5  # for each life

    waiting = make("atari:Breakout", seed=0, training=training, options=replace(NO_NOOPS, fire=False))
    waiting.reset()
    for _ in range(600):
        waiting.step(np.asarray(NOOP))
    assert waiting._source._ale.lives() == 5


def test_fire_comes_after_the_noops():
    env, rng = make("atari:Breakout", seed=3, options=AUTHORS), np.random.default_rng(3)
    for _ in range(5):
        noops = int(rng.integers(1, 31))
        console = Console("breakout")
        console.hold(NOOP, noops)
        console.hold(FIRE)
        np.testing.assert_array_equal(env.reset().observation[-1], shrunk(console.screens[1]))
        assert env._source._ale.getEpisodeFrameNumber() == noops + REPEAT


def test_fire_is_held_for_the_action_repeat():
    env = make("atari:Breakout", seed=0, training=True, options=replace(NO_NOOPS, action_repeat=3))
    env.reset()
    assert env._source._ale.getEpisodeFrameNumber() == 3
    frames = {step.frames for step in random_game(env, np.random.default_rng(0)) if not step.last}
    assert frames == {3, 6}


def test_a_game_without_fire_is_left_alone():
    fired, left = (
        make("atari:CrazyClimber", seed=0, training=True, options=replace(AUTHORS, fire=fire))
        for fire in (True, False)
    )
    rng, lost = np.random.default_rng(0), 0
    assert fingerprint(fired.reset()) == fingerprint(left.reset())
    for _ in range(1200):
        action = fired.spec.actions.sample(rng)
        step = fired.step(action)
        assert fingerprint(step) == fingerprint(left.step(action))
        lost += step.lost_life
    assert lost > 0, "the test saw no lost life"


def test_lives_of_qbert_count_once():
    env = make("atari:Qbert", seed=0, training=True, options=AUTHORS)
    for seed in range(3):
        steps = list(random_game(env, np.random.default_rng(seed)))
        assert sum(step.lost_life for step in steps) == 3  # of four
        assert sum(step.terminal for step in steps) == 4


class Scripted:
    """The emulator, but for its lives and its end, which follow a script, frame by frame."""

    def __init__(self, ale, lives, over_at: int) -> None:
        self._ale, self._lives, self._over_at = ale, lives, over_at
        self.buttons: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self._ale, name)

    def act(self, button: int) -> int:
        self.buttons.append(button)
        self._ale.act(NOOP)
        return 1

    def lives(self) -> int:
        return self._lives[len(self.buttons)]

    def game_over(self, with_truncation: bool = False) -> bool:  # noqa: ARG002
        return len(self.buttons) >= self._over_at


def scripted(lives, over_at, options=AUTHORS):
    env = make("atari:Qbert", seed=0, training=True, options=replace(options, noops=0))
    env.reset()
    source = env._source
    source._ale, source._lives = Scripted(source._ale, lives, over_at), lives[0]
    return env, source._ale.buttons


def test_no_lives_for_some_frames_before_the_end_are_no_lost_life():
    env, buttons = scripted(lives=[2] * 2 + [1] * 8 + [0] * 20, over_at=20)
    steps = [env.step(np.asarray(2))]
    while not steps[-1].last:
        steps.append(env.step(np.asarray(2)))
    assert [step.lost_life for step in steps] == [True, False, False, False]
    assert [step.terminal for step in steps] == [True, False, False, True]
    up = 2
    assert buttons == [up] * 4 + [FIRE] * 4 + [up] * 12


def test_the_end_of_a_game_is_no_lost_life_where_some_are_left():
    env, _ = scripted(lives=[2] * 6 + [1] * 40, over_at=7)
    assert not env.step(np.asarray(2)).lost_life
    step = env.step(np.asarray(2))
    assert (step.terminated, step.lost_life, step.frames) == (True, False, 3)


def test_a_life_that_was_won_can_be_lost():
    env, _ = scripted(lives=[2] * 4 + [3] * 4 + [2] * 40, over_at=40, options=replace(AUTHORS, fire=False))
    assert [env.step(np.asarray(0)).lost_life for _ in range(5)] == [False, True, False, False, False]


@pytest.mark.parametrize("frames_of_fire", [1, 3, 4])
def test_a_game_that_is_over_while_fire_is_pressed_is_over(frames_of_fire):
    env, buttons = scripted(lives=[2] * 2 + [1] * 40, over_at=4 + frames_of_fire)
    assert env.step(np.asarray(2)).lost_life
    step = env.step(np.asarray(2))
    assert (step.terminated, step.lost_life, step.frames) == (True, False, frames_of_fire)
    assert step.score == frames_of_fire
    assert buttons[4:] == [FIRE] * frames_of_fire
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.asarray(2))


def test_what_fire_earns_counts():
    env, _ = scripted(lives=[2] * 2 + [1] * 40, over_at=40)
    scores = [(step.score, step.frames) for step in (env.step(np.asarray(2)) for _ in range(3))]
    assert scores == [(4.0, 4), (8.0, 8), (4.0, 4)]


def test_a_new_game_does_not_remember_the_lives_of_the_last():
    env = make("atari:Breakout", seed=0, training=True, options=AUTHORS)
    rng = np.random.default_rng(0)
    for step in random_game(env, rng):
        if step.lost_life:
            break  # FIRE is due
    env.reset()
    assert env.step(np.asarray(NOOP)).frames == REPEAT


def test_a_new_game_with_fewer_lives_has_lost_none():
    env, _ = scripted(lives=[9] * 5 + [5] * 40, over_at=40)
    env.step(np.asarray(2))
    env.reset()
    assert not env.step(np.asarray(2)).lost_life


def test_the_frame_cap_holds_while_fire_is_pressed(monkeypatch):
    def first_loss(env):
        return next(step for step in random_game(env, np.random.default_rng(0)) if step.lost_life)

    env = make("atari:Breakout", seed=0, training=True, options=NO_NOOPS)
    first_loss(env)
    cap = env._source._ale.getEpisodeFrameNumber() + 2
    monkeypatch.setitem(PROTOCOLS, "ogspr", replace(PROTOCOLS["ogspr"], frame_cap=cap))
    env = make("atari:Breakout", seed=0, training=True, options=NO_NOOPS)
    assert not first_loss(env).last
    step = env.step(np.asarray(NOOP))
    assert (step.truncated, step.terminal, step.frames) == (True, False, 2)


# --- snapshots and processes --------------------------------------------------------------------


def actions_and_losses(count: int):
    """A game by a fixed sequence of actions: fingerprints, and the steps with which lives are lost."""
    env, rng = make("atari:Breakout", seed=1, training=True, options=AUTHORS), np.random.default_rng(1)
    actions = [env.spec.actions.sample(rng) for _ in range(count)]
    env.reset()
    steps = [env.step(action) for action in actions]
    return (
        actions,
        [fingerprint(step) for step in steps],
        [n for n, step in enumerate(steps) if step.lost_life],
    )


@pytest.mark.parametrize("worker", [False, True])
def test_snapshots_around_a_lost_life_go_on(tmp_path, worker):
    actions, expected, losses = actions_and_losses(70)
    assert len(losses) >= 2, "the continuation should lose a life, too"
    env, files = make("atari:Breakout", seed=1, training=True, options=AUTHORS), {}
    env.reset()
    for number, action in enumerate(actions[: losses[0] + 2]):
        assert fingerprint(env.step(action)) == expected[number]
        if number >= losses[0] - 1:  # before, at and after the loss
            files[number] = tmp_path / f"{number}.npz"
            save_tree(files[number], env.snapshot(), SNAPSHOT)
    assert len(files) == 3
    fresh = launch("atari:Breakout", seed=999, training=True, options=AUTHORS, worker=worker)
    for number, file in files.items():
        assert fingerprint(fresh.restore(load_tree(file, SNAPSHOT))) == expected[number]
        assert [fingerprint(fresh.step(action)) for action in actions[number + 1 :]] == expected[number + 1 :]
    fresh.close()


def test_a_worker_that_dies_around_a_lost_life_changes_nothing():
    actions, expected, (loss, *_) = actions_and_losses(70)
    lines: list[str] = []
    start = lambda: launch("atari:Breakout", seed=1, training=True, options=AUTHORS)  # noqa: E731
    env = ResilientEnvironment(start, lines.append)
    env.reset()
    seen = []
    for number, action in enumerate(actions[: loss + 3]):
        if number in (loss, loss + 1):  # before the step that loses it, and with FIRE due
            os.kill(env._env.pid, signal.SIGKILL)
            env._env._process.join()
        seen.append(fingerprint(env.step(action)))
    assert seen == expected[: len(seen)]
    assert len(lines) == 2
    env.close()


@pytest.mark.parametrize("option", ["life_loss", "fire"])
@pytest.mark.parametrize("value", [True, False])
def test_other_suites_have_neither_lives_nor_fire(option, value):
    with pytest.raises(UserError, match=f"option {option.replace('_', '-')} does not apply to dmc"):
        check_task("dmc:walker-walk", EnvOptions(**{option: value}))
