"""Where runs start from: what a preset says about a task."""

import pytest

from ogspr.agents.methods import all_preset_names
from ogspr.errors import UserError
from ogspr.training.presets import preset_options


@pytest.mark.parametrize("name", all_preset_names())
def test_every_preset_has_options_for_every_suite(name):
    for task in ("dmc:walker-walk", "atari:Pong", "gym:CartPole-v1"):
        assert preset_options(name, task).agent_steps > 0


def test_mrq_learns_from_rewards_as_they_are_and_others_from_their_signs():
    assert preset_options("mrq", "atari:Pong").env.sign_rewards is False
    assert preset_options("ogspr", "atari:Pong").env.sign_rewards is None  # as the protocol says
    assert preset_options("mrq", "dmc:walker-walk").env.sign_rewards is None


def test_ogspr_plays_atari_as_its_authors_do():
    authors = preset_options("ogspr", "atari:Pong")
    assert authors.env.atari_protocol == "ogspr"
    assert (authors.evaluation.episodes, authors.evaluation.final_episodes) == (10, 100)
    assert authors.evaluation.environments == 10
    for preset, task in (("mrq", "atari:Pong"), ("ogspr", "dmc:walker-walk"), ("ogspr", "")):
        other = preset_options(preset, task)
        assert other.env.atari_protocol is None
        assert other.evaluation.final_episodes is None


def test_drqv2_keeps_fewer_steps_where_its_authors_did():
    assert preset_options("drqv2", "dmc:quadruped-run").replay.capacity == 100_000
    assert preset_options("drqv2", "dmc:quadruped-walk").replay.capacity is None


def test_lengths_of_training_are_the_papers():
    tasks = {"dmc:walker-walk": 500_000, "dmc:humanoid-run": 2_000_000, "atari:Pong": 100_000}
    assert {task: preset_options("ogspr", task).agent_steps for task in tasks} == tasks


def test_an_unknown_preset_gets_a_suggestion():
    with pytest.raises(UserError, match="mrq"):
        preset_options("mqr", "dmc:walker-walk")


def test_small_leaves_shadows_out_where_there_are_any():
    assert preset_options("small", "dmc:walker-walk").env.shadows is False
    for task in ("atari:Pong", "examples.chase:make"):
        assert preset_options("small", task).env.shadows is None  # which other worlds would refuse
    assert preset_options("ogspr", "dmc:walker-walk").env.shadows is None
