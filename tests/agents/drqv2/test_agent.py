"""Schedules, presets, sizes, acting and saved states."""

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from ogspr.agents.drqv2 import DrQv2Config, Sizes, preset
from ogspr.agents.drqv2.policy import DrQv2Policy
from ogspr.agents.drqv2.presets import DIFFICULTY, EASY, HARD, MEDIUM
from ogspr.agents.methods import METHODS, method_of, method_with_preset
from ogspr.envs.tasks import dmc_tasks
from ogspr.errors import UserError
from ogspr.reference import paper_scores
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator
from ogspr.types import ContinuousActions, EnvSpec
from tests.agents.drqv2.scene import SPEC, UPDATES, make_agent, scene, scramble, small_config
from tests.agents.scene import CPU, filled_replay, make_spec
from tests.agents.states import played, same, through_a_file
from tests.train.learners import distance, make_learner, weights

CHEETAH = EnvSpec("cheetah-run", (3, 84, 84), 3, ContinuousActions(6), 2, 500)


# --- when and how noisily ---------------------------------------------------------------------------


def test_one_update_follows_every_second_step_after_the_random_ones():
    agent = make_agent(small_config(random_steps=2000))
    due = [agent.updates_due(steps) for steps in range(1, 2008)]
    assert not any(due[:2000])
    assert due[2000:] == [1, 0, 1, 0, 1, 0, 1]  # the steps 2001, 2002, ...


@pytest.mark.parametrize(
    ("task", "scales"),
    [
        ("dmc:walker-walk", {0: 1.0, 50_000: 0.55, 100_000: 0.1, 500_000: 0.1}),
        ("dmc:cheetah-run", {0: 1.0, 50_000: 0.91, 100_000: 0.82, 500_000: 0.1, 10**6: 0.1}),
        ("dmc:humanoid-walk", {0: 1.0, 500_000: 0.775, 10**6: 0.55, 2 * 10**6: 0.1}),
    ],
)
def test_noise_falls_by_the_schedule_of_the_task(task, scales):
    config = preset(task)
    assert {steps: config.noise_scale(steps) for steps in scales} == pytest.approx(scales)


def test_updates_have_the_noise_of_the_agent_step_they_follow():
    """20 random steps, an update every 2 steps, noise from 1 to 0.1 in 100 steps."""
    agent, replay = scene()
    seen = []
    for name in ("bootstrapped_target", "actor_loss"):
        place = {"bootstrapped_target": 4, "actor_loss": 3}[name]
        agent._update._accelerator.interventions[name] = lambda result, *arguments, place=place: (
            seen.append(float(arguments[place])) or result
        )
    assert agent.updates == UPDATES == 7
    assert agent.metrics()["noise_scale"] == pytest.approx(1 - 0.9 * 0.34)
    agent.update(replay)
    agent.update(replay)
    assert seen == pytest.approx([1 - 0.9 * 0.34] * 2 + [1 - 0.9 * 0.36] * 2)
    assert agent.metrics()["noise_scale"] == pytest.approx(1 - 0.9 * 0.38)


def test_a_loaded_agent_is_measured_with_the_noise_of_its_next_update():
    source, replay = scene()
    loaded, _ = scene()
    loaded.updates = 0  # a new one, in which nothing tells how far the other has come
    loaded.load_state_dict(source.state_dict())
    loaded.phases(replay)["optimise"]()
    measured = weights_of(loaded)
    source.update(replay)
    assert measured == weights_of(source)


def weights_of(agent):
    return {name: weight.tolist() for name, weight in agent.policy.named_parameters()}


def silent(agent):
    """An agent whose policy means zero, whatever it sees."""
    with torch.no_grad():
        for parameter in agent.policy.mlp.layers[-1].parameters():
            parameter.zero_()
    return agent


def test_exploring_is_uniform_first_then_as_noisy_as_the_schedule_says():
    agent = silent(make_agent(small_config(random_steps=20, noise_steps=100)))
    pictures = np.zeros((2000, *SPEC.observation_shape), np.uint8)

    def spread(agent_steps):
        return agent.ask(pictures[:500], agent_steps=agent_steps, explore=True)().std()

    assert spread(19) == pytest.approx(1 / np.sqrt(3), rel=0.05)
    assert spread(100) == pytest.approx(0.1, rel=0.08)
    assert spread(90) == pytest.approx(0.19, rel=0.08)  # the tensor is filled anew
    assert spread(100) == pytest.approx(0.1, rel=0.08)
    early = agent.ask(
        pictures, agent_steps=20, explore=True
    )()  # 0.82: not clipped at 0.3, but at the borders
    assert np.abs(early).max() < 1.0
    assert (np.abs(early) > 0.3).mean() == pytest.approx(0.714, abs=0.03)  # P(|N(0, 1)| > 0.366)
    assert not agent.ask(pictures[0], agent_steps=20, explore=False)().any()


# --- settings ---------------------------------------------------------------------------------------


def test_the_method_is_found_by_its_preset_and_its_configuration():
    assert method_with_preset("drqv2") is METHODS["drqv2"] is method_of(DrQv2Config())
    assert METHODS["drqv2"].preset("drqv2", "dmc:walker-walk") == preset("dmc:walker-walk")


def test_presets_have_the_published_numbers():
    config = preset("dmc:cheetah-run")
    assert config == DrQv2Config()
    assert config.sizes == Sizes(32, 50, 1024)
    assert (config.n_step, config.discount, config.target_rate) == (3, 0.99, 0.01)
    assert (config.batch_size, config.learning_rate, config.shift_pad) == (256, 1e-4, 4)
    assert (config.random_steps, config.steps_per_update) == (2000, 2)
    assert (config.noise_start, config.noise_end, config.update_noise_limit) == (1.0, 0.1, 0.3)
    assert config.longest_horizon == 3


def test_some_domains_have_numbers_of_their_own():
    for task, steps in (("walker-stand", 100_000), ("walker-walk", 100_000), ("walker-run", 500_000)):
        expected = DrQv2Config(n_step=1, batch_size=512, noise_steps=steps)
        assert preset(f"dmc:{task}") == expected
    humanoid = DrQv2Config(learning_rate=8e-5, sizes=Sizes(features=100), noise_steps=2_000_000)
    assert {preset(f"dmc:humanoid-{task}") for task in ("stand", "walk", "run")} == {humanoid}


@pytest.mark.parametrize("task", ["", "dmc:dog-run", "dmc:fish-swim", "gym:CartPole-v1", "walker-walk"])
def test_other_tasks_count_as_medium(task):
    assert preset(task) == DrQv2Config()


def test_the_table_of_difficulties_names_tasks_that_exist():
    assert DIFFICULTY.keys() <= {task.name for task in dmc_tasks()}
    ours = {name.removeprefix("dmc:") for name in paper_scores() if name.startswith("dmc:")}
    assert len(ours) == 28
    assert ours - DIFFICULTY.keys() == {"dog-run", "dog-stand", "dog-trot", "dog-walk", "fish-swim"}
    counts = [sum(found is kind for found in DIFFICULTY.values()) for kind in (EASY, MEDIUM, HARD)]
    assert counts == [9, 11, 3]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batch_size": 0}, "batch size must be at least 1"),
        ({"steps_per_update": 0}, "steps per update must be at least 1"),
        ({"noise_steps": 0}, "noise steps must be at least 1"),
        ({"discount": 1.5}, "discount must be from 0 to 1"),
        ({"target_rate": -0.1}, "target rate must be from 0 to 1"),
        ({"learning_rate": -0.1}, "learning rate must be at least 0"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changes, complaint):
    with pytest.raises(UserError, match=complaint):
        replace(DrQv2Config(), **changes)


def test_discrete_actions_are_refused():
    spec = make_spec("discrete")
    complaint = "drqv2 learns continuous actions only, and small has 4 discrete ones"
    with pytest.raises(UserError, match=complaint):
        make_agent(small_config(), spec)
    accelerator = make_accelerator(Execution("eager", "fp32"), CPU)
    with pytest.raises(UserError, match=complaint):
        DrQv2Policy(small_config(), spec, device=CPU, accelerator=accelerator)


# --- sizes ------------------------------------------------------------------------------------------


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_at_cheetah_run():
    """Where the OG-SPR paper's table says 4.4 M."""
    agent = make_agent(DrQv2Config(batch_size=2), CHEETAH)
    trunk = 39_200 * 50 + 50 + 2 * 50
    assert count(agent.value_network.encoder) == 30_368
    assert count(agent.policy.trunk) == count(agent.value_network.critic.trunk) == trunk == 1_960_150
    assert count(agent.policy.mlp) == 1_107_974
    assert count(agent.value_network.critic.pair) == 2_217_986
    assert count(agent.target_critic) == 4_178_136
    assert agent.parameter_count == 7_276_628


# --- saved states -----------------------------------------------------------------------------------


def test_an_agent_goes_on_from_a_saved_state_to_the_bit():
    first, second = (make_agent(small_config(), seed=seed) for seed in (0, 5))
    scramble(second)
    replay = filled_replay(first, SPEC)
    played(first, SPEC, 2, replay, late=70)
    second.load_state_dict(through_a_file(first.state_dict()))
    other_replay = copy.deepcopy(replay)
    ours, theirs = played(first, SPEC, 3, replay, late=70), played(second, SPEC, 3, other_replay, late=70)
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (agent.state_dict()["tensors"] for agent in (first, second))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert first.updates == second.updates == 5
    assert first.metrics() == second.metrics()


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    agent, other = make_agent(small_config()), make_agent(small_config(sizes=Sizes(6, 10, 25)), seed=1)
    before = {name: tensor.clone() for name, tensor in agent.state_dict()["tensors"].items()}
    with pytest.raises(ValueError, match="does not fit"):
        agent.load_state_dict(other.state_dict())
    after = agent.state_dict()["tensors"]
    assert all(same(before[name], after[name]) for name in before)


def test_no_two_saved_tensors_share_memory():
    tensors = make_agent(small_config()).state_dict()["tensors"].values()
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


# --- in a learner -----------------------------------------------------------------------------------


def test_bf16_learns_about_the_same():
    plain, rough = (
        make_learner(config=small_config(), execution=Execution("eager", precision))
        for precision in ("fp32", "bf16")
    )
    start = weights(plain)
    for learner in (plain, rough):
        for _ in range(4):
            learner.update()
    way = distance(weights(plain), start)
    assert 0 < distance(weights(plain), weights(rough)) / way < 0.5


def test_the_phases_of_an_update_learn_at_the_last_one_only():
    learner = make_learner(config=small_config())
    phases, start = learner.phases(), weights(learner)
    assert list(phases) == ["sample", "forward", "backward", "optimise"]
    for name in ("sample", "forward", "backward"):
        phases[name]()
    assert distance(weights(learner), start) == 0.0
    phases["optimise"]()
    assert distance(weights(learner), start) > 0.0
