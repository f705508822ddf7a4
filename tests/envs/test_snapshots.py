"""A snapshot, restored into a fresh environment in another process, goes on to the bit."""

from dataclasses import replace

import numpy as np
import pytest

from ogspr.envs import EnvOptions, make
from ogspr.envs.tasks import dmc_tasks
from ogspr.errors import SnapshotError
from ogspr.records.tree import save_tree
from ogspr.reference import paper_scores
from tests.helpers.trajectories import SNAPSHOT, continuation, fingerprint, in_another_process, play

DMC = [f"dmc:{task.name}" for task in dmc_tasks()]
DMC_GROUPS = [DMC[start : start + 7] for start in range(0, len(DMC), 7)]
ATARI = sorted(name for name in paper_scores() if name.startswith("atari:"))
OTHERS = ["gym:CartPole-v1", "examples.chase:make"]


def check_continuation(names, folder):
    """Plays here, saves, goes on here; the other process restores and must go on identically."""
    expected, files = {}, []
    for index, name in enumerate(names):
        env = make(name, seed=index + 1, training=True)
        env.reset()
        play(env, 5, seed=1)
        env.reset()  # a second episode: generators that run on over episodes are no longer fresh
        current = play(env, 3, seed=2)[-1]
        file = folder / f"{index}.npz"
        save_tree(file, env.snapshot(), SNAPSHOT)
        files.append(f"{name}={file}")
        expected[name] = [current, *continuation(env)]
        env.close()
    assert in_another_process("continue", *files) == expected


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("names", DMC_GROUPS, ids=lambda names: names[0])
def test_every_dmc_task_goes_on(names, tmp_path):
    check_continuation(names, tmp_path)


def test_atari_games_go_on(tmp_path):
    check_continuation(ATARI, tmp_path)


def test_gymnasium_environments_go_on(tmp_path):
    check_continuation(OTHERS, tmp_path)


@pytest.mark.usefixtures("opengl")
def test_proprioception_that_was_handed_out_does_not_come_back_either():
    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=8))
    step = env.reset()
    original = step.proprioception.copy()
    step.proprioception[:] = 7.0
    np.testing.assert_array_equal(env.snapshot()["proprioception"], original)
    env.close()


@pytest.mark.usefixtures("opengl")
def test_a_snapshot_right_after_a_reset_goes_on():
    env = make("dmc:walker-walk", seed=0)
    env.reset()
    snapshot = env.snapshot()
    expected = continuation(env)
    assert env.restore(snapshot).reward == 0.0
    assert continuation(env) == expected
    env.close()


@pytest.mark.usefixtures("opengl")
def test_a_snapshot_of_a_finished_episode_still_wants_a_reset():
    options = EnvOptions(image_size=8, action_repeat=1000)
    env = make("dmc:pendulum-swingup", seed=0, options=options)
    env.reset()
    assert env.step(np.zeros(1, np.float32)).truncated
    snapshot = env.snapshot()
    expected = fingerprint(env.reset())
    fresh = make("dmc:pendulum-swingup", seed=5, options=options)
    assert fresh.restore(snapshot).truncated
    with pytest.raises(RuntimeError, match="reset"):
        fresh.step(np.zeros(1, np.float32))
    assert fingerprint(fresh.reset()) == expected
    env.close()
    fresh.close()


def test_a_snapshot_is_not_changed_by_what_comes_after():
    env = make("atari:Pong", seed=0)
    env.reset()
    snapshot = env.snapshot()
    first = continuation(env)
    play(env, 20, seed=3)
    env.restore(snapshot)
    assert continuation(env) == first


def test_sticky_actions_go_on_with_the_same_luck():
    options = EnvOptions(atari_protocol="machado2018")
    env = make("atari:Breakout", seed=0, options=options)
    env.reset()
    play(env, 10, seed=0)
    snapshot = env.snapshot()
    expected = play(env, 60, seed=1)
    fresh = make("atari:Breakout", seed=77, options=options)
    fresh.restore(snapshot)
    assert play(fresh, 60, seed=1) == expected


@pytest.mark.parametrize(
    ("name", "training", "options"),
    [
        ("atari:Breakout", False, EnvOptions()),
        ("atari:Pong", False, EnvOptions(noops=3)),
        ("atari:Pong", True, EnvOptions()),
    ],
    ids=["another game", "another protocol", "other rewards"],
)
def test_a_snapshot_of_something_else_is_refused(name, training, options):
    env = make("atari:Pong", seed=0)
    env.reset()
    with pytest.raises(SnapshotError, match="snapshot was taken with"):
        make(name, seed=0, training=training, options=options).restore(env.snapshot())


def test_only_what_differs_is_named():
    env = make("atari:Pong", seed=0)
    env.reset()
    with pytest.raises(SnapshotError) as refusal:
        make("atari:Pong", seed=0, options=EnvOptions(noops=3)).restore(env.snapshot())
    assert "a different protocol (noops 30 instead of 3); restore it" in str(refusal.value)


def test_a_snapshot_from_before_there_were_lives_goes_on():
    """Version 0.1 saved neither lives nor FIRE; its runs of MR.Q and DrQ-v2 go on."""
    env = make("atari:Breakout", seed=0)
    env.reset()
    play(env, 10, seed=0)
    snapshot = env.snapshot()
    expected = play(env, 60, seed=1)
    for name in ("terminal_on_life_loss", "fire"):
        del snapshot["protocol"][name]
    for name in ("lives", "fire_due"):
        del snapshot["source"][name]
    del snapshot["lost_life"]
    fresh = make("atari:Breakout", seed=77)
    fresh.restore(snapshot)
    assert play(fresh, 60, seed=1) == expected
    with pytest.raises(SnapshotError, match="fire False instead of True, preset atari100k instead of ogspr"):
        make("atari:Breakout", seed=0, options=EnvOptions(atari_protocol="ogspr")).restore(snapshot)


def test_a_snapshot_goes_on_where_something_else_draws(monkeypatch):
    """Another GPU model on a cluster is no reason to lose a run."""
    env = make("atari:Pong", seed=0)
    env.reset()
    snapshot = env.snapshot()
    other = make("atari:Pong", seed=0)
    monkeypatch.setattr(other._source, "spec", replace(other.spec, renderer="another GPU"))
    other.restore(snapshot)


def test_an_action_buffer_may_be_reused():
    env = make("examples.chase:make", seed=0)
    env.reset()
    buffer = np.zeros(2, np.float32)
    for value in (0.5, -0.5, 1.0):
        buffer[:] = value
        env.step(buffer)
    snapshot = env.snapshot()
    assert snapshot["source"]["actions"][:, 0].tolist() == [0.5, -0.5, 1.0]
    env.restore(snapshot)


@pytest.mark.parametrize("name", ["atari:Pong", "examples.chase:make"])
def test_what_a_caller_does_to_an_observation_does_not_come_back(name):
    env, twin = make(name, seed=0), make(name, seed=0)
    step = env.reset()
    assert fingerprint(step) == fingerprint(twin.reset())
    snapshot = env.snapshot()
    step.observation[:] = 7
    assert not np.array_equal(snapshot["observation"], step.observation)
    assert play(env, 5, seed=0) == play(twin, 5, seed=0)
    snapshot["observation"][:] = 7
    assert play(env, 5, seed=1) == play(twin, 5, seed=1)


def test_something_that_is_no_snapshot_is_refused():
    with pytest.raises(SnapshotError, match="not an environment snapshot"):
        make("atari:Pong", seed=0).restore({"weights": 3})


def test_a_world_that_does_not_repeat_itself_is_found_out():
    env = make("tests.helpers.worlds:unrepeatable", seed=0)
    env.reset()
    env.step(np.asarray(0))
    with pytest.raises(SnapshotError, match="is not deterministic"):
        env.restore(env.snapshot())
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.asarray(0))


def test_a_step_that_raised_ends_the_episode_so_that_no_snapshot_holds_it():
    env = make("tests.helpers.worlds:raising", seed=0)
    env.reset()
    env.step(np.asarray(0))
    env.step(np.asarray(0))
    with pytest.raises(ValueError, match="fell apart"):
        env.step(np.asarray(0))
    with pytest.raises(RuntimeError, match="call reset"):
        env.snapshot()
    env.reset()
    env.restore(env.snapshot())


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("name", ["dmc:reacher-easy", "atari:Pong", "examples.chase:make"])
def test_same_seed_same_frames_in_two_processes_and_other_seeds_differ(name):
    first = in_another_process("seeds", name, "6", "1", "2")
    second = in_another_process("seeds", name, "6", "1")
    assert first["1"] == second["1"]
    assert first["1"] != first["2"]
