import os
import signal

import numpy as np
import pytest

from ogspr.envs import InexactState, ResilientEnvironment, WorkerDied, launch


def start(task="tests.helpers.worlds:drift", seed=3):
    lines: list[str] = []
    return ResilientEnvironment(lambda: launch(task, seed=seed), lines.append), lines


def kill_worker(env):
    os.kill(env._env.pid, signal.SIGKILL)
    env._env._process.join()


def played(env, deaths=(), steps=40):
    """What an agent sees in some episodes; before some of its steps the worker is killed."""
    rng = np.random.default_rng(0)
    step = env.reset()
    seen = [step]
    for number in range(steps):
        if number in deaths:
            kill_worker(env)
        step = env.reset() if step.last else env.step(env.spec.actions.sample(rng))
        seen.append(step)
    return seen


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.observation, other.observation)
        assert (one.reward, one.terminated, one.truncated, one.lost_life) == (
            other.reward,
            other.terminated,
            other.truncated,
            other.lost_life,
        )


def test_deaths_change_nothing():
    env, lines = start()
    expected = played(env)
    assert not lines
    env.close()
    resets = [place for place, step in enumerate(expected) if step.last]  # the next call is a reset
    env, lines = start()
    assert_equal(played(env, deaths=(0, 5, 17, 30, *resets[:1])), expected)
    env.close()
    assert all("A new one continues from the same state" in line for line in lines)
    assert len(lines) == len({0, 5, 17, 30, resets[0]})


def test_a_death_in_the_middle_of_a_step_changes_nothing():
    env, _ = start()
    env.reset()
    action = np.array([0.3, -0.2], np.float32)
    expected = env.step(action)
    env.close()
    env, lines = start()
    env.reset()
    os.kill(env._env.pid, signal.SIGSTOP)
    env.begin_step(action)
    assert not env.step_ready()
    kill_worker(env)
    assert env.step_ready()
    assert_equal([env.finish_step()], [expected])
    assert lines
    env.close()


def test_a_death_after_a_restore_changes_nothing():
    env, _ = start()
    expected = played(env, steps=15)
    env.close()
    env, _ = start()
    played(env, steps=7)
    saved = env.snapshot()
    env.close()
    env, lines = start()
    env.restore(saved)
    kill_worker(env)
    rng = np.random.default_rng(0)
    for _ in range(7):
        env.spec.actions.sample(rng)
    assert_equal([env.step(env.spec.actions.sample(rng))], expected[8:9])
    assert lines
    env.close()


def test_a_worker_that_always_dies_is_given_up():
    env, lines = start("tests.helpers.worlds:killed")
    env.reset()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        for _ in range(3):
            env.step(np.asarray(0))
    assert len(lines) == 3
    env.close()


def test_a_world_that_does_not_repeat_itself_is_not_continued():
    env, _ = start("tests.helpers.worlds:unrepeatable")
    env.reset()
    kill_worker(env)
    with pytest.raises(Exception, match=r"is not deterministic|did not reach") as error:
        env.step(np.asarray(0))
    assert error.type.__name__ in ("SnapshotError", InexactState.__name__)
    env.close()
