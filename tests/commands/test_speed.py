"""`ogspr doctor --speed`: its arithmetic by hand, and that every number it prints is measured."""

import time
from dataclasses import replace

import pytest
from rich.console import Console

from ogspr.commands import speed as module
from ogspr.commands.declared import Doctor
from ogspr.commands.speed import Speed, conclusion, seconds_each, show_speed
from ogspr.device import CPU
from ogspr.training.options import EvaluationOptions
from tests.training.learners import OTHER_METHODS
from tests.training.runs import tiny_options

DRIFT = "tests.helpers.worlds:drift"
SPEED = Speed(environment=0.02, policy=0.01, update=0.3, training=0.32, evaluation=0.001, episode_steps=200.0)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.05)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    options = tiny_options()
    monkeypatch.setattr(module, "preset_options", lambda name, _: replace(options, agent=OTHER_METHODS[name]))


def shown(task, preset):
    console = Console(record=True, width=200)
    return show_speed(Doctor(task=task, speed=True, preset=preset), console), console.export_text()


def options(agent_steps, random_steps, **evaluation):
    base = tiny_options()
    return replace(
        base,
        agent=replace(base.agent, random_steps=random_steps),
        agent_steps=agent_steps,
        evaluation=EvaluationOptions(**evaluation),
    )


def test_the_largest_part_bounds_training():
    assert SPEED.bound() == ("update", 0.3 / 0.32)
    slow = replace(SPEED, environment=0.5, training=0.5)
    assert slow.bound() == ("environment", 1.0)
    assert replace(slow, training=0.49).bound() == ("environment", 1.0)  # measured one after the other


def test_hours_of_training_by_hand():
    """1000 random steps of 0.02 seconds, and 9000 whole ones of 0.32."""
    assert SPEED.training_hours(options(10_000, 1_000)) == pytest.approx((20 + 2880) / 3600)
    assert SPEED.training_hours(options(500, 1_000)) == pytest.approx(10 / 3600)


@pytest.mark.parametrize(
    ("agent_steps", "final", "episodes"),
    [(10_000, None, 30), (10_000, 100, 120), (9_999, None, 30), (10_001, None, 40)],
)
def test_hours_of_evaluation_by_hand(agent_steps, final, episodes):
    """At step 0, every 5000 steps, and at the end; 200 steps of 0.001 seconds for each episode."""
    wanted = options(agent_steps, 0, every=5_000, episodes=10, final_episodes=final)
    assert SPEED.evaluation_hours(wanted) == pytest.approx(episodes * 0.2 / 3600)


def test_the_conclusion_names_what_bounds_and_how_long_a_run_takes():
    wanted = options(1_000_000, 0, every=500_000, episodes=10)
    bound, hours = conclusion(SPEED, wanted, "ogspr", on_gpu=False)
    assert bound.startswith("bound by the update, which alone takes 94% of a step of training.")
    assert "--preset small" in bound
    assert (
        hours == "1000000 agent steps take about 3.7 days here: 3.7 days of training, a minute of evaluation."
    )


def test_a_gpu_is_advised_to_train_several_seeds():
    assert "--seeds" in next(conclusion(SPEED, options(100, 0), "ogspr", on_gpu=True))


def test_the_first_call_does_not_count(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.1)
    calls = iter([1.0, *(0.02 for _ in range(6))])
    each = seconds_each(lambda: time.sleep(next(calls)), CPU)
    assert 0.02 <= each < 0.15  # with the first call it would be more than 0.16


@pytest.mark.usefixtures("quick")
def test_one_call_that_takes_longer_than_there_is_time_is_enough():
    calls = []

    def run():
        calls.append(time.sleep(0.1))

    assert 0.1 <= seconds_each(run, CPU) < 0.5
    assert len(calls) == 2


@pytest.mark.usefixtures("quick")
def test_this_machine_is_measured():
    speed, text = shown(DRIFT, "small")
    assert f"{DRIFT}, preset small" in text
    for name in ("environment", "policy", "update", "training", "evaluation"):
        seconds = getattr(speed, name)
        assert seconds > 0
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert float(line.split()[1]) == pytest.approx(1 / seconds, rel=0.01)
    assert speed.training > max(speed.policy, 0.5 * speed.update)
    assert "bound by the" in text
    assert "5000 agent steps take about" in text


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("preset", OTHER_METHODS)
def test_every_method_is_measured(preset):
    assert shown(DRIFT, preset)[0].update > 0


@pytest.mark.usefixtures("tiny")
def test_the_update_of_one_agent_step_counts(monkeypatch):
    """DrQ-v2 updates after every second step."""
    found = []
    monkeypatch.setattr(module, "seconds_each", lambda run, _: found.append(run()) or 1.0)
    speed, _ = shown(DRIFT, "drqv2")
    assert speed.update == OTHER_METHODS["drqv2"].steps_per_update ** -1 == 0.5
    assert (speed.environment, speed.evaluation) == (1.0, 0.5)  # two environments, side by side


@pytest.mark.usefixtures("quick")
def test_episodes_are_as_long_as_those_that_were_played():
    assert shown("tests.helpers.worlds:counter", "small")[0].episode_steps <= 10
