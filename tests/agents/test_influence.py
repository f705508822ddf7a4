"""Every loss moves the encoder: what would have shown that next-observation prediction was switched off."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.ogspr import preset, preset_names
from ogspr.agents.ogspr.config import PIXEL_RANGE, ObservationPrediction
from ogspr.agents.ogspr.losses import TASK_LOSSES
from ogspr.device import CPU
from ogspr.envs import make
from ogspr.ops.images import scaled_pixels
from ogspr.ops.values import squared_error
from ogspr.replay import Replay, ReplayShape
from ogspr.training.presets import preset_options
from tests.agents.ogspr.scene import scene, small_config
from tests.agents.reference import global_norm
from tests.agents.scene import KINDS, LATE, gradients, make_agent, make_spec
from tests.agents.states import differing, snapshot

# Of the combined gradient on the encoder. A mean over pixels has 0.0001 on DeepMind Control, 0.003 on Atari.
SMALLEST_SHARE = 5e-3
TASKS = {"dmc": "dmc:walker-walk", "atari100k": "atari:Pong"}
STEPS, UPDATES = 60, 8


@pytest.fixture(scope="module", params=TASKS)
def images(request):
    """A suite, the spec of one of its tasks, and a replay of random steps in it."""
    return request.param, *random_steps(make(TASKS[request.param], seed=0))


def random_steps(env):
    spec, rng = env.spec, np.random.default_rng(0)
    replay = Replay(ReplayShape(100, spec.frame_shape, spec.frame_stack, spec.actions.vector_size, 5), CPU)
    replay.begin(env.reset())
    for _ in range(STEPS):
        action = spec.actions.sample(rng)
        vector = action if action.shape else np.eye(spec.actions.vector_size, dtype=np.float32)[action]
        step = env.step(action)
        # Pong has no reward in its first steps: a little, so that there are values to learn.
        replay.add(vector, replace(step, reward=step.reward + 0.1 * float(rng.standard_normal())))
    env.close()
    return spec, replay


def influences(config, spec, replay):
    agent, replay = make_agent(replace(config, batch_size=16), spec), copy.deepcopy(replay)
    for _ in range(UPDATES):
        agent.update(replay, LATE)
    prefix = "encoder_gradient_"
    return {name.removeprefix(prefix): v for name, v in agent.metrics().items() if name.startswith(prefix)}


def shares(found):
    """Of each auxiliary loss, beside the combined gradient."""
    auxiliary = found.keys() - {"value", "combined"}
    return {name: found[name] / found["combined"] for name in auxiliary}


@pytest.mark.parametrize("name", preset_names())
def test_every_auxiliary_loss_of_every_preset_moves_the_encoder(name, images):
    suite, spec, replay = images
    config = preset(name, suite)
    found = shares(influences(config, spec, replay))
    assert found.keys() == {task.name for task in config.tasks}
    assert all(share > SMALLEST_SHARE for share in found.values()), found


def test_every_auxiliary_loss_of_the_preset_for_a_cpu_moves_the_encoder():
    task = TASKS["dmc"]
    options = preset_options("small", task)
    found = shares(influences(options.agent, *random_steps(make(task, seed=0, options=options.env))))
    assert all(share > SMALLEST_SHARE for share in found.values()), found


def test_the_guard_would_have_caught_a_mean_over_pixels(images, monkeypatch):
    """The loss that this package had before: 21 168 times smaller on DeepMind Control, 7056 on Atari."""

    def averaged(head, _state_action, seen):
        frame = scaled_pixels(seen.next_frame, *PIXEL_RANGE)
        return squared_error(head(seen.z_aux), frame, torch.ones(len(frame)), "mean")

    monkeypatch.setitem(TASK_LOSSES, ObservationPrediction, averaged)
    suite, spec, replay = images
    found = shares(influences(preset("ogspr", suite), spec, replay))
    assert found["observation"] < SMALLEST_SHARE


# --- what is measured -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_norms_are_those_of_the_weighted_losses_on_the_encoder(kind):
    """Of the batch that its own random numbers draw, by plain autograd through the update's functions."""
    subject = scene(kind)
    found = subject.agent.method.influence(subject.replay, 7)
    value_network = subject.networks.value.eval()  # no power iteration
    terms = subject.look(seed=7).found.terms
    encoder = dict(value_network.core.encoder.named_parameters())
    weighted = {name: weight * terms[name] for name, weight in subject.agent.config.weights.items()}
    for name, loss in (weighted | {"combined": sum(weighted.values())}).items():
        norm = global_norm(gradients(loss, encoder))
        assert found[f"encoder_gradient_{name}"] == pytest.approx(norm, rel=1e-4), name
    assert len(found) == len(weighted) + 1


def test_at_most_32_windows_are_looked_at(monkeypatch):
    subject, asked = scene(batch_size=48), []
    peek = subject.replay.peek
    monkeypatch.setattr(subject.replay, "peek", lambda wanted: asked.extend(wanted) or peek(wanted))
    subject.agent.method.influence(subject.replay, 0)
    assert [(draw.batch, draw.horizon) for draw, _ in asked] == [(32, 3), (32, 5)]
    assert subject.networks.value.training  # again


@pytest.mark.parametrize("kind", KINDS)
def test_who_looks_changes_nothing(kind):
    """Weights, random numbers, priorities and the power iteration: two agents, one of them watched."""
    watched, other = scene(kind), scene(kind)
    for _ in range(3):
        for subject in (watched, other):
            subject.agent.update(subject.replay, LATE)
        watched.agent.method.influence(watched.replay, watched.agent.updates)
    assert not differing(snapshot(watched.agent), snapshot(other.agent))
    states = [subject.agent.state_dict()["generator"] for subject in (watched, other)]
    assert torch.equal(*states)
    assert torch.equal(watched.replay.priority, other.replay.priority)


def test_before_the_first_update_nothing_is_known():
    agent = make_agent(small_config(), make_spec("continuous"))
    names = [f"encoder_gradient_{name}" for name in (*agent.config.weights, "combined")]
    assert all(math.isnan(agent.metrics()[name]) for name in names)
