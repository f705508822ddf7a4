import numpy as np
import pytest
import torch

from ogspr.envs import launch
from ogspr.training.evaluation import Evaluator, PolicySnapshot

TASK = "tests.helpers.worlds:drift"


class Constant:
    """A policy whose one weight is its action."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.batches: list[int] = []

    def load_weights(self, weights) -> None:
        self.weight = float(weights["w"])

    def initial_carry(self, count):  # noqa: ARG002
        return {}

    def act(self, images, carry, first, rng):  # noqa: ARG002
        self.batches.append(len(images))
        return np.full((len(images), 2), self.weight, np.float32), carry


def evaluator(episodes=5, environments=2):
    return Evaluator(Constant(), launched(environments), episodes)


def launched(count):
    return [launch(TASK, seed=place, worker=False) for place in range(count)]


def snapshot(weight: float, agent_steps: int = 10) -> PolicySnapshot:
    return PolicySnapshot(agent_steps, 2 * agent_steps, {"w": torch.tensor(weight)})


def finished(judge):
    while True:
        result = judge.advance(wait=True)
        if result is not None:
            return result


def by_hand(seed: int, weight: float, episodes: int) -> list[tuple[float, int]]:
    env = launch(TASK, seed=seed, worker=False)
    scores = []
    for _ in range(episodes):
        step, score, count = env.reset(), 0.0, 0
        while not step.last:
            step = env.step(np.full(2, weight, np.float32))
            score, count = score + step.score, count + 1
        scores.append((score, count))
    return scores


def test_episodes_are_those_of_each_environment_in_turn():
    policy = Constant()
    judge = Evaluator(policy, launched(2), 5)
    judge.begin(snapshot(0.25))
    result = finished(judge)
    first, second = by_hand(0, 0.25, 3), by_hand(1, 0.25, 2)
    expected = [first[0], second[0], first[1], second[1], first[2]]
    assert [(episode.score, episode.agent_steps) for episode in result.episodes] == expected
    assert result.mean_score == pytest.approx(np.mean([score for score, _ in expected]))
    assert set(policy.batches) == {2}  # always the same number of images: acting stays fast


def test_the_next_evaluation_goes_on_with_the_same_environments():
    judge = evaluator(episodes=2)
    for _ in range(2):
        judge.begin(snapshot(0.1))
        result = finished(judge)
    assert [episode.score for episode in result.episodes] == [by_hand(seed, 0.1, 2)[1][0] for seed in (0, 1)]


@pytest.mark.parametrize("steps", [0, 1, 7, 13])
def test_an_evaluation_that_was_interrupted_begins_again(steps):
    judge = evaluator(episodes=4)
    judge.begin(snapshot(0.1))
    finished(judge)
    judge.begin(snapshot(-0.2, agent_steps=20))
    for _ in range(steps):
        assert judge.advance(wait=True) is None
    state = judge.state_dict()
    expected = finished(judge)
    again = evaluator(episodes=4)
    again.load_state_dict(state)
    assert again.busy
    result = finished(again)
    assert result.episodes == expected.episodes
    assert result.snapshot.agent_steps == 20


def test_an_evaluation_may_have_a_number_of_its_own():
    judge = evaluator(episodes=2)
    counts = []
    for asked in (None, 5, None):
        judge.begin(snapshot(0.1), asked)
        counts.append([episode.score for episode in finished(judge).episodes])
    assert [len(scores) for scores in counts] == [2, 5, 2]
    first, second = ([score for score, _ in by_hand(seed, 0.1, 5)] for seed in (0, 1))
    assert counts[1] == [first[1], second[1], first[2], second[2], first[3]]
    assert counts[2] == [first[4], second[3]]


@pytest.mark.parametrize("steps", [0, 7, 20])
def test_one_with_a_number_of_its_own_begins_again_with_it(steps):
    judge = evaluator(episodes=2)
    judge.begin(snapshot(-0.2), 7)
    for _ in range(steps):
        assert judge.advance(wait=True) is None
    state = judge.state_dict()
    expected = finished(judge)
    again = evaluator(episodes=2)
    again.load_state_dict(state)
    result = finished(again)
    assert len(result.episodes) == 7
    assert result.episodes == expected.episodes
    again.begin(snapshot(-0.2))
    assert len(finished(again).episodes) == 2


def test_a_state_without_evaluation_is_continued():
    judge = evaluator(episodes=2)
    fresh = judge.state_dict()
    judge.begin(snapshot(0.1))
    finished(judge)
    used = judge.state_dict()
    assert fresh["occasion"] is None and used["occasion"] is None
    judge.begin(snapshot(0.3))
    expected = finished(judge)
    again = evaluator(episodes=2)
    again.load_state_dict(used)
    again.begin(snapshot(0.3))
    assert finished(again).episodes == expected.episodes


def test_it_waits_only_when_told():
    policy, environments = Constant(), launched(2)
    judge = Evaluator(policy, environments, 2)
    judge.begin(snapshot(0.1))
    environments[1].step_ready = lambda: False
    for _ in range(100):
        assert judge.advance(wait=False) is None
    assert len(policy.batches) == 1
    assert finished(judge).episodes
