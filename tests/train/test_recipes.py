"""Where runs start from: what a preset says about a task."""

import pytest

from ogspr.errors import UserError
from ogspr.train.recipes import recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_preset_has_options_for_every_suite(name):
    for task in ("dmc:walker-walk", "atari:Pong", "gym:CartPole-v1"):
        assert recipe(name, task).agent_steps > 0


def test_mrq_learns_from_rewards_as_they_are_and_others_from_their_signs():
    assert recipe("mrq", "atari:Pong").env.sign_rewards is False
    assert recipe("ogspr", "atari:Pong").env.sign_rewards is None  # as the protocol says
    assert recipe("mrq", "dmc:walker-walk").env.sign_rewards is None


def test_ogspr_plays_atari_as_its_authors_do():
    authors = recipe("ogspr", "atari:Pong")
    assert authors.env.atari_protocol == "ogspr"
    assert (authors.evaluation.episodes, authors.evaluation.final_episodes) == (10, 100)
    assert authors.evaluation.environments == 10
    for other in (recipe("mrq", "atari:Pong"), recipe("ogspr", "dmc:walker-walk"), recipe("ogspr", "")):
        assert other.env.atari_protocol is None
        assert other.evaluation.final_episodes is None


def test_drqv2_keeps_fewer_steps_where_its_authors_did():
    assert recipe("drqv2", "dmc:quadruped-run").replay.capacity == 100_000
    assert recipe("drqv2", "dmc:quadruped-walk").replay.capacity is None


def test_lengths_of_training_are_the_papers():
    tasks = {"dmc:walker-walk": 500_000, "dmc:humanoid-run": 2_000_000, "atari:Pong": 100_000}
    assert {task: recipe("ogspr", task).agent_steps for task in tasks} == tasks


def test_an_unknown_preset_gets_a_suggestion():
    with pytest.raises(UserError, match="mrq"):
        recipe("mqr", "dmc:walker-walk")


def test_small_leaves_shadows_out_where_there_are_any():
    assert recipe("small", "dmc:walker-walk").env.shadows is False
    for task in ("atari:Pong", "examples.chase:make"):
        assert recipe("small", task).env.shadows is None  # which other worlds would refuse
    assert recipe("ogspr", "dmc:walker-walk").env.shadows is None
