"""DeepMind Control against dm_control itself."""

import csv
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from ogspr.envs import EnvOptions, dmc, make
from ogspr.envs.tasks import dmc_tasks
from ogspr.errors import UserError
from tests.helpers.trajectories import ROOT

pytestmark = pytest.mark.usefixtures("opengl")

# One task of each domain, and the one whose terrain changes with every episode.
DOMAIN_TASKS = {task.name.split("-")[0]: task.name for task in dmc_tasks()} | {"escape": "quadruped-escape"}
AGENT_STEPS = 3


def expected_camera(task: str) -> int:
    return 2 if task.startswith("quadruped") else 0


def run_reference(out, tasks, steps=AGENT_STEPS):
    entries = [f"{task}={expected_camera(task)}" for task in tasks]
    command = [sys.executable, "-m", "tests.helpers.dm_control_reference", str(out), str(steps), *entries]
    subprocess.run(command, cwd=ROOT, check=True)
    with np.load(out) as file:
        return dict(file)


@pytest.fixture(scope="module")
def reference(tmp_path_factory, opengl):  # noqa: ARG001  decides MUJOCO_GL for the program it runs
    return run_reference(tmp_path_factory.mktemp("reference") / "frames.npz", DOMAIN_TASKS.values())


@pytest.mark.parametrize("task", DOMAIN_TASKS.values())
def test_frames_and_rewards_are_dm_controls(task, reference):
    env = make(f"dmc:{task}", seed=3)
    rng = np.random.default_rng(7)
    steps = [env.reset()]
    for _ in range(AGENT_STEPS):
        steps.append(env.step(rng.uniform(-1, 1, env.spec.actions.shape).astype(np.float32)))
    env.close()
    for step, frame in zip(steps, reference[f"{task}/frames"], strict=True):
        np.testing.assert_array_equal(step.observation[-3:].transpose(1, 2, 0), frame)
    raw = reference[f"{task}/rewards"]
    assert [step.reward for step in steps[1:]] == [first + second for first, second in raw.tolist()]
    assert [step.frames for step in steps] == [0, 2, 2, 2]


def test_the_stack_holds_the_last_three_frames():
    env = make("dmc:cartpole-swingup", seed=0)
    action = np.ones(1, np.float32)
    observations = [env.reset().observation] + [env.step(action).observation for _ in range(3)]
    env.close()
    frames = [observation[-3:] for observation in observations]
    assert not np.array_equal(frames[0], frames[1])
    np.testing.assert_array_equal(observations[0], np.concatenate([frames[0]] * 3))
    np.testing.assert_array_equal(observations[1], np.concatenate([frames[0], frames[0], frames[1]]))
    np.testing.assert_array_equal(observations[3], np.concatenate(frames[1:]))


def test_an_episode_is_500_agent_steps_and_ends_by_truncation():
    # Shadows are most of the work of drawing.
    env = make("dmc:pendulum-swingup", seed=0, options=EnvOptions(image_size=8, shadows=False))
    step = env.reset()
    count = 0
    while not step.last:
        step = env.step(np.zeros(1, np.float32))
        count += 1
    assert (count, env.spec.episode_steps) == (500, 500)
    assert (step.truncated, step.terminated) == (True, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.zeros(1, np.float32))
    env.close()


def test_an_odd_action_repeat_stops_at_the_end_of_the_episode():
    env = make("dmc:pendulum-swingup", seed=0, options=EnvOptions(image_size=8, action_repeat=300))
    step = env.reset()
    frames = []
    while not step.last:
        step = env.step(np.zeros(1, np.float32))
        frames.append(step.frames)
    assert frames == [300, 300, 300, 100]
    assert env.spec.episode_steps == 4
    env.close()


def test_tasks_without_a_time_limit_are_cut_after_500_agent_steps():
    env = make("dmc:lqr-lqr_2_1", seed=0)
    assert env.spec.episode_steps == 500
    env.close()


def test_reaching_lqrs_goal_terminates():
    """The one domain that ends by itself: there the value of what follows is 0."""
    source = dmc.make_source("lqr-lqr_2_1", 0, EnvOptions(image_size=8))
    source.reset()
    source._env.physics.data.qpos[:] = 0.0
    source._env.physics.data.qvel[:] = 0.0
    source._env.physics.forward()
    step = source.step(np.zeros(1, np.float32))
    assert (step.terminated, step.truncated) == (True, False)
    source.close()


def test_proprioception_is_dm_controls_observation():
    source = dmc.make_source("cheetah-run", 0, EnvOptions(image_size=8))
    step = source.reset()
    native = source._env.task.get_observation(source._env.physics)
    np.testing.assert_array_equal(
        step.proprioception, np.concatenate([native["position"], native["velocity"]])
    )
    assert source.spec.proprioception_size == step.proprioception.size == 17
    source.close()


def test_actions_are_scaled_to_the_actuators_bounds():
    source = dmc.make_source("quadruped-walk", 0, EnvOptions(image_size=8))
    native = source._env.action_spec()
    assert native.maximum.max() > 1.0, "the test needs a task whose bounds are not 1"
    source.reset()
    source.step(np.ones(12, np.float32))
    np.testing.assert_allclose(source._env.physics.control(), native.maximum)
    source.step(-np.ones(12, np.float32))
    np.testing.assert_allclose(source._env.physics.control(), native.minimum)
    source.close()


def test_bad_actions_are_refused():
    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=8))
    env.reset()
    for bad in (np.zeros(5, np.float32), np.full(6, np.nan, np.float32), np.full(6, 1.5, np.float32)):
        with pytest.raises(ValueError, match="expected"):
            env.step(bad)
    env.close()


def test_diverged_physics_truncates_the_episode_and_the_run_goes_on():
    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=8))
    before = env.reset()
    env._source._env.physics.data.qvel[:] = 1e15
    step = env.step(np.zeros(6, np.float32))
    assert "PhysicsError" in step.fault
    assert (step.truncated, step.terminated, step.reward) == (True, False, 0.0)
    np.testing.assert_array_equal(step.observation, before.observation)
    env.reset()
    assert not env.step(np.zeros(6, np.float32)).fault
    env.close()


def test_resets_that_diverge_are_tried_again_and_reported(monkeypatch):
    from dm_control.rl.control import PhysicsError

    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=8))
    task = env._source._env.task
    real, calls = task.initialize_episode, []

    def diverging(physics, times):
        calls.append(physics)
        if len(calls) <= times:
            raise PhysicsError("bad start")
        real(physics)

    monkeypatch.setattr(task, "initialize_episode", lambda physics: diverging(physics, 2))
    step = env.reset()
    assert step.fault.count("reset failed: PhysicsError: bad start") == 2
    assert not step.last
    monkeypatch.setattr(task, "initialize_episode", lambda physics: diverging(physics, 99))
    with pytest.raises(RuntimeError, match="could not be reset in 10 attempts"):
        env.reset()
    env.close()


def test_a_non_finite_reward_truncates_the_episode(monkeypatch):
    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=8))
    env.reset()
    monkeypatch.setattr(env._source._env.task, "get_reward", lambda _physics: float("nan"))
    step = env.step(np.zeros(6, np.float32))
    assert "non-finite reward" in step.fault
    assert (step.truncated, step.reward) == (True, 0.0)
    env.close()


def test_without_shadows_the_world_is_the_same_and_its_pictures_are_brighter():
    with_them, without = (
        make("dmc:cheetah-run", seed=0, options=EnvOptions(frame_stack=1, shadows=shadows))
        for shadows in (None, False)
    )
    shaded, bright = with_them.reset().observation.astype(int), without.reset().observation.astype(int)
    assert 0.01 < (bright != shaded).any(0).mean() < 0.3
    assert (bright - shaded).max() > 50  # where a shadow was
    assert bright.mean() > shaded.mean()
    action = np.full(6, 0.5)
    assert with_them.step(action).score == without.step(action).score
    assert without.spec.protocol["shadows"] is False
    assert "shadows" not in with_them.spec.protocol
    for env in (with_them, without):
        env.close()


def test_the_picture_for_shadows_has_mujocos_depth_and_no_stencil():
    """MuJoCo's own has 8 bits of stencil that nobody reads, which made clearing it slow."""
    source = dmc.make_source("cheetah-run", 0, EnvOptions())
    from OpenGL import GL  # once OpenGL is chosen

    renderer = source._renderer._renderer
    renderer._gl_context.make_current()
    GL.glBindTexture(GL.GL_TEXTURE_2D, renderer._mjr_context.shadowTex)
    names = ("WIDTH", "HEIGHT", "DEPTH_SIZE", "STENCIL_SIZE")
    found = [
        int(GL.glGetTexLevelParameteriv(GL.GL_TEXTURE_2D, 0, getattr(GL, f"GL_TEXTURE_{name}")))
        for name in names
    ]
    source.close()
    assert found == [2048, 2048, 24, 0]


@pytest.mark.parametrize("ending", ["closed", "forgotten"])
def test_an_environment_that_ends_takes_nothing_from_another(ending):
    """Both draw in this process; MuJoCo's own way of closing deleted the other's textures."""

    def pictures(env):
        env.reset()
        return np.stack([env.step(np.full(1, 0.5)).observation for _ in range(3)])

    ended = make("dmc:cartpole-swingup", seed=0)
    other = make("dmc:cartpole-swingup", seed=0)
    ended.reset()
    other.reset()  # the last to draw
    if ending == "closed":
        ended.close()
    else:
        del ended
        gc.collect()
    found = pictures(other)
    assert found.std() > 10 and (found[0] != found[-1]).any()
    other.close()
    fresh = make("dmc:cartpole-swingup", seed=0)
    fresh.reset()
    np.testing.assert_array_equal(found, pictures(fresh))
    fresh.close()


def test_cameras_that_do_not_exist_are_refused():
    with pytest.raises(UserError, match="cameras 0 to 1, got 7"):
        make("dmc:cheetah-run", seed=0, options=EnvOptions(camera=7))


def test_the_table_of_tasks_is_the_suites():
    from dm_control import suite

    real = {
        f"{domain}-{task}": suite.load(domain, task).action_spec().shape[0]
        for domain, task in suite.ALL_TASKS
    }
    assert {task.name: task.action_size for task in dmc_tasks()} == real


def test_the_papers_28_tasks_are_known():
    rows = csv.DictReader((ROOT / "ogspr/data/paper/dmc_scores.csv").open())
    paper = {row["task"] for row in rows}
    assert len(paper) == 28
    assert paper <= {task.name for task in dmc_tasks()}


@pytest.mark.parametrize("task", [task.name for task in dmc_tasks()])
def test_no_task_changes_a_model_field_that_snapshots_leave_out(task):
    from dm_control import suite

    source = dmc.make_source(task, 0, EnvOptions(image_size=8, shadows=False))
    model = source._model
    rng = np.random.default_rng(0)
    other_seed = suite.load(*task.split("-", 1), task_kwargs={"random": 1})
    pristine = model_arrays(other_seed.physics.model.ptr)
    other_seed.close()
    changed = set()
    for _ in range(2):
        source.reset()
        for _ in range(3):
            source.step(source.spec.actions.sample(rng))
        now = model_arrays(model)
        changed |= {
            name for name, value in now.items() if not np.array_equal(value, pristine[name], equal_nan=True)
        }
    source.close()
    assert changed <= set(dmc.EPISODE_MODEL_FIELDS)


def model_arrays(model):
    names = [name for name in dir(model) if not name.startswith("_")]
    values = {name: getattr(model, name) for name in names if name not in ("bind", "signature")}
    # Meshes and textures are megabytes and nothing but a recompilation changes them.
    skipped = ("mesh_", "tex_", "skin_")
    return {
        name: value.copy()
        for name, value in values.items()
        if isinstance(value, np.ndarray) and not name.startswith(skipped)
    }


@pytest.mark.gpu
def test_on_a_gpu_frames_are_dm_controls_too(opengl, tmp_path):
    assert not opengl.software, f"{opengl.renderer} is a software renderer"
    reference = run_reference(tmp_path / "frames.npz", DOMAIN_TASKS.values())
    for task in DOMAIN_TASKS.values():
        test_frames_and_rewards_are_dm_controls(task, reference)


def test_user_choices_reach_the_picture():
    env = make("dmc:cheetah-run", seed=0, options=EnvOptions(image_size=48, frame_stack=2, camera=1))
    assert env.reset().observation.shape == env.spec.observation_shape == (6, 48, 48)
    assert env.spec.protocol["camera"] == 1
    env.close()


def test_importing_the_package_does_not_import_mujoco():
    code = "import sys, ogspr, ogspr.cli; sys.exit('mujoco' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ).returncode == 0
