"""Representations of every variant, from an agent's saved tensors."""

import hashlib

import numpy as np
import pytest
import torch

from ogspr.agents.agent import make_representation
from ogspr.agents.ogspr import preset_names
from ogspr.agents.ogspr.config import PIXEL_RANGE
from ogspr.device import CPU
from ogspr.ops.images import scaled_pixels
from tests.training.learners import CONTINUOUS, DISCRETE, make_learner, small_config

SPECS = pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])


def pictures_and_actions(spec, count=5):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (count, *spec.observation_shape), dtype=np.uint8)
    return pictures, np.stack([spec.actions.sample(rng) for _ in range(count)])


def made(config, spec, tensors):
    return make_representation(config, spec, tensors, device=CPU)


def digest(tensors):
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        hashed.update(name.encode() + tensors[name].detach().cpu().numpy().tobytes())
    return hashed.hexdigest()


@SPECS
@pytest.mark.parametrize("variant", preset_names())
def test_it_shows_what_the_agent_that_learned_it_computes(variant, spec):
    config = small_config(variant)
    learner = make_learner(spec=spec, config=config)
    learner.update(1)
    tensors = learner.state_dict()["tensors"]
    representation = made(config, spec, tensors)
    pictures, actions = pictures_and_actions(spec)
    h, z = representation.encode(pictures, actions)
    core = learner.agent.method.networks.value.core
    vectors = torch.from_numpy(learner.agent.action_vector(actions))
    with torch.no_grad():
        expected_h = core.latent(scaled_pixels(torch.from_numpy(pictures), *PIXEL_RANGE))
        expected_z = core.state_action(expected_h, vectors)
    assert torch.equal(h, expected_h)
    assert torch.equal(z, expected_z)
    assert not torch.equal(z, core.state_action(expected_h, vectors.roll(1, 0)))  # z depends on the action


def test_it_is_frozen():
    config = small_config()
    tensors = make_learner(config=config).state_dict()["tensors"]
    representation = made(config, CONTINUOUS, tensors)
    before = digest(representation.weights()), digest(tensors)
    h, z = representation.encode(*pictures_and_actions(CONTINUOUS))
    assert not h.requires_grad
    assert not z.requires_grad
    assert (digest(representation.weights()), digest(tensors)) == before


def test_the_callers_chance_is_not_touched():
    config = small_config()
    tensors = make_learner(config=config).state_dict()["tensors"]
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    made(config, CONTINUOUS, tensors)
    assert torch.rand(1) == expected


def test_tensors_of_other_networks_are_refused():
    tensors = make_learner(config=small_config("no-adapter")).state_dict()["tensors"]
    with pytest.raises(ValueError, match=r"missing .*adapter1\.weight"):
        made(small_config(), CONTINUOUS, tensors)
    with pytest.raises(ValueError, match="encoder"):
        made(small_config("no-adapter"), DISCRETE, tensors)
