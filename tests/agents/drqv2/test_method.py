"""Schedules, presets, sizes and acting."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ogspr.agents.agent import make_policy, make_representation
from ogspr.agents.drqv2 import DrQv2Config, Sizes, preset
from ogspr.agents.drqv2.config import DIFFICULTY, EASY, HARD, MEDIUM
from ogspr.agents.methods import METHODS, method_of, method_with_preset
from ogspr.device import CPU
from ogspr.envs.tasks import dmc_tasks
from ogspr.errors import UserError
from ogspr.reference import paper_scores
from ogspr.types import ContinuousActions, EnvSpec
from tests.agents.drqv2.scene import AGENT_STEPS, SPEC, scene, small_config
from tests.agents.scene import Recording, make_agent, make_spec

CHEETAH = EnvSpec("cheetah-run", (3, 84, 84), 3, ContinuousActions(6), 2, 500)


# --- when and how noisily ---------------------------------------------------------------------------


def test_one_update_follows_every_second_step_after_the_random_ones():
    agent = make_agent(small_config(random_steps=2000), SPEC)
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
    subject = scene()
    agent = subject.agent
    assert agent.metrics()["noise_scale"] == pytest.approx(1 - 0.9 * 0.34)
    for agent_steps, share in ((AGENT_STEPS, 0.34), (AGENT_STEPS + 2, 0.36)):
        agent.update(subject.replay, agent_steps)
        target, _ = subject.recording.calls["bootstrapped_target"]
        actor, _ = subject.recording.calls["actor_loss"]
        assert float(target[4]) == float(actor[3]) == pytest.approx(1 - 0.9 * share)
    assert agent.metrics()["noise_scale"] == pytest.approx(1 - 0.9 * 0.38)


def test_exploring_is_uniform_first_then_as_noisy_as_the_schedule_says():
    agent = make_agent(small_config(random_steps=20, noise_steps=100), SPEC)
    with torch.no_grad():  # a policy that means zero, whatever it sees
        for parameter in agent.method.networks.policy.mlp.layers[-1].parameters():
            parameter.zero_()
    pictures = np.zeros((2000, *SPEC.observation_shape), np.uint8)

    def spread(agent_steps):
        return agent.act_async(pictures[:500], first=False, agent_steps=agent_steps)().std()

    assert spread(19) == pytest.approx(1 / np.sqrt(3), rel=0.05)
    assert spread(100) == pytest.approx(0.1, rel=0.08)
    assert spread(90) == pytest.approx(0.19, rel=0.08)  # the tensor is filled anew
    assert spread(100) == pytest.approx(0.1, rel=0.08)
    # 0.82: not clipped at 0.3, but at the borders
    early = agent.act_async(pictures, first=False, agent_steps=20)()
    assert np.abs(early).max() < 1.0
    assert (np.abs(early) > 0.3).mean() == pytest.approx(0.714, abs=0.03)  # P(|N(0, 1)| > 0.366)
    assert not agent.act_async(pictures[0], first=False, agent_steps=20, explore=False)().any()


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
    spec, complaint = (
        make_spec("discrete"),
        "drqv2 supports continuous actions only, and small has 4 discrete actions",
    )
    with pytest.raises(UserError, match=complaint):
        make_agent(small_config(), spec)
    with pytest.raises(UserError, match=complaint):
        make_policy(small_config(), spec, device=CPU, accelerator=Recording())


def test_it_has_no_representation_to_probe():
    tensors = make_agent(small_config(), SPEC).state_dict()["tensors"]
    assert make_representation(small_config(), SPEC, tensors, device=CPU) is None


# --- sizes ------------------------------------------------------------------------------------------


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_at_cheetah_run():
    """Where the OG-SPR paper's table says 4.4 M."""
    agent = make_agent(DrQv2Config(batch_size=2), CHEETAH)
    value, policy = agent.method.networks.value, agent.method.networks.policy
    trunk = 39_200 * 50 + 50 + 2 * 50
    assert count(value.encoder) == 30_368
    assert count(policy.trunk) == count(value.critic.trunk) == trunk == 1_960_150
    assert count(policy.mlp) == 1_107_974
    assert count(value.critic.pair) == 2_217_986
    assert count(agent.method.networks.target_critic) == 4_178_136
    assert agent.parameter_count == 7_276_628
