"""The loop of one run with everybody else made up: who is called when, and what it saves of an episode."""

from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from ogspr.training.trainer import Schedule, Stopwatch, Trainer
from ogspr.types import TimeStep

EPISODE = 3  # steps


class Diary:
    """A learner, its agent, and their environment, that write down what they are asked for."""

    def __init__(self, asynchronous=False):
        self.entries = []
        self.asynchronous = asynchronous
        self.agent = self
        self.stream = nullcontext
        self.steps = 0

    def act_async(self, _image, *, first, agent_steps, explore):
        self.entries.append(f"ask {agent_steps}" + " first" * first)
        assert explore
        return lambda: self.entries.append("answer") or np.zeros(2)

    def updates_due(self, agent_steps):
        return agent_steps - 1  # 0, 1, 2

    def update(self, agent_steps):
        self.entries.append(f"update {agent_steps}")

    def begin(self, _step):
        self.entries.append("store first")

    def add(self, _action, _step):
        self.entries.append("store")

    def reset(self):
        self.steps = 0
        return self._time_step()

    def begin_step(self, _action):
        self.entries.append("step begins")

    def finish_step(self):
        self.entries.append("step ends")
        self.steps += 1
        return self._time_step()

    def snapshot(self):
        return {"steps": self.steps}

    def restore(self, state):
        self.steps = state["steps"]
        return self._time_step()

    def _time_step(self):
        picture = np.zeros((1, 4, 4), np.uint8)
        return TimeStep(picture, 1.0, 1.0, False, self.steps == EPISODE, 2, np.zeros(0))


def made_trainer(diary, records=None):
    evaluator = SimpleNamespace(
        busy=False, begin=Mock(), advance=Mock(), state_dict=dict, load_state_dict=Mock()
    )
    diary.policy_weights = dict
    return Trainer(diary, diary, evaluator, records or Mock(), Schedule(100, 100, 100, True), Stopwatch())


def play(trainer, rounds):
    for _ in range(rounds):
        trainer.begin_round()
        trainer.send_action()
        trainer.finish_round()


ROUNDS = {
    # The GPU is busy while everybody else waits for the environment.
    True: """
        store first
        ask 0 first, answer, step begins, step ends, store
        ask 1, update 2, answer, step begins, step ends, store
        ask 2, update 3, update 3, answer, step begins, step ends, store, store first
        ask 3 first, update 4""",
    # Updates do not delay the action, and are made while the environment works.
    False: """
        store first
        ask 0 first, answer, step begins, step ends, store
        ask 1, answer, step begins, update 2, step ends, store
        ask 2, answer, step begins, update 3, update 3, step ends, store, store first
        ask 3 first, answer, step begins, update 4""",
}


@pytest.mark.parametrize("asynchronous", ROUNDS)
def test_updates_delay_no_action(asynchronous):
    diary = Diary(asynchronous)
    trainer = made_trainer(diary)
    trainer.start()
    play(trainer, 4)
    expected = [
        entry.strip() for entry in ROUNDS[asynchronous].replace("\n", ",").split(",") if entry.strip()
    ]
    assert diary.entries[: len(expected)] == expected


@pytest.mark.parametrize("age", ["new", "old"])
def test_an_episode_is_continued_with_all_its_sums(age):
    trainer = made_trainer(Diary())
    trainer.start()
    play(trainer, EPISODE - 1)
    state, other = trainer.state_dict(), made_trainer(Diary())
    if age == "old":
        del state["progress"]["episode_frames"]
    other.load_state_dict(state)
    episode = other._slot.episode()
    assert (episode.score, episode.agent_steps) == (2.0, 2)
    assert episode.frames == {"new": 4, "old": 0}[age]
    assert other.progress == trainer.progress
