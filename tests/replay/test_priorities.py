"""Which steps are drawn, and how often."""

import math

import pytest
import torch

from ogspr.device import CPU
from ogspr.replay import Replay, ReplayShape
from ogspr.types import Draw
from tests.ops.chi_square import check_shares
from tests.replay.model import Recorder, evenly, make_replay
from tests.replay.test_sampling import JUST_UNDER_ONE

SKIP, DO_NOT_SKIP = torch.tensor(1.0), torch.tensor(0.0)


def recorded(*episodes: int, capacity: int = 60, frame_stack: int = 3) -> Recorder:
    """Truncated episodes of so many steps."""
    recorder = Recorder(make_replay(capacity, frame_stack))
    for steps in episodes:
        recorder.add_episode(steps, truncated=True)
    return recorder


def slots(uniforms: torch.Tensor, replay: Replay, horizon: int, **draw: bool) -> torch.Tensor:
    (window,) = replay.draw([(Draw(len(uniforms), horizon, **draw), uniforms)])
    return window.starts


def set_priorities(replay: Replay, priorities: dict[int, float], skip: torch.Tensor = DO_NOT_SKIP) -> None:
    replay.set_priorities(torch.tensor(list(priorities)), torch.tensor(list(priorities.values())), skip)


def counts_of_many(replay: Replay, horizon: int, **draw: bool) -> torch.Tensor:
    """How often each slot is drawn."""
    uniforms = torch.rand(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.bincount(slots(uniforms, replay, horizon, **draw), minlength=60)


VALID = torch.tensor([*range(8), *range(11, 19)])  # of two episodes of ten steps, for horizon 3


@pytest.mark.parametrize("by_priority", [True, False])
def test_steps_are_drawn_as_often_as_their_priorities_say_or_all_alike(by_priority):
    replay = recorded(10, 10).replay
    priorities = torch.linspace(1.0, 6.0, 16)
    replay.set_priorities(VALID, priorities, DO_NOT_SKIP)
    invalid = [slot for slot in range(60) if slot not in VALID.tolist()]
    set_priorities(replay, dict.fromkeys(invalid, 50.0))
    counts = counts_of_many(replay, 3, by_priority=by_priority)
    check_shares(counts[VALID], priorities if by_priority else torch.ones(16))
    assert counts[invalid].sum() == 0


@pytest.mark.parametrize("by_priority", [True, False])
def test_starts_of_windows_across_episodes_are_drawn_likewise(by_priority):
    """Of 20 stored observations, all but the last four; also those at which an episode ends."""
    replay = recorded(10, 8, frame_stack=1).replay
    priorities = torch.linspace(1.0, 6.0, 16)
    replay.set_priorities(torch.arange(16), priorities, DO_NOT_SKIP)
    counts = counts_of_many(replay, 4, by_priority=by_priority, across_episodes=True)
    check_shares(counts[:16], priorities if by_priority else torch.ones(16))
    assert counts[16:].sum() == 0


def test_a_window_keeps_the_priority_that_its_start_had_when_it_was_drawn():
    replay = recorded(10).replay
    set_priorities(replay, {2: 4.0, 3: 0.5})
    (window,) = replay.draw([(Draw(50, 3), evenly(50))])
    expected = torch.ones(60).index_put((torch.tensor([2, 3]),), torch.tensor([4.0, 0.5]))[window.starts]
    assert {2, 3} < set(window.starts.tolist())
    set_priorities(replay, {2: 9.0, 4: 7.0})
    assert torch.equal(window.priority, expected)


def test_a_start_valid_for_short_windows_only_is_drawn_for_these():
    replay = recorded(4).replay
    assert set(slots(evenly(100), replay, 2).tolist()) == {0, 1, 2}
    assert set(slots(evenly(100), replay, 4).tolist()) == {0}


@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_the_ends_of_the_unit_interval_draw_the_first_and_last_valid_start(horizon):
    replay = recorded(10).replay
    ends = torch.tensor([0.0, JUST_UNDER_ONE], dtype=torch.float64)
    assert slots(ends, replay, horizon).tolist() == [0, 10 - horizon]


@pytest.mark.parametrize("priority", [1.0, 1.1])
def test_half_a_million_slots_of_one_priority_are_drawn_evenly(priority):
    count = 500_000
    replay = Replay(ReplayShape(count, (1, 1, 1), 3, 1, 5), CPU)
    replay.reach.fill_(5)
    replay._starts.fill(count)
    replay.priority.fill_(priority)
    nearly_the_next = evenly(count) + 0.499 / count
    for uniforms in (evenly(count), nearly_the_next):
        assert torch.equal(slots(uniforms, replay, 3), torch.arange(count))


def test_the_first_steps_have_priority_one():
    assert recorded(3).replay.priority[:3].tolist() == [1.0, 1.0, 1.0]


def test_new_steps_get_the_largest_priority_seen_so_far():
    recorder = recorded(5)
    set_priorities(recorder.replay, {1: 4.0, 2: 7.0, 3: 2.0})
    recorder.add_episode(2)  # slots 6, 7 and 8
    assert recorder.replay.priority[6:8].tolist() == [7.0, 7.0]


def test_the_largest_priority_stays_when_the_step_that_had_it_falls():
    recorder = recorded(5)
    set_priorities(recorder.replay, {2: 7.0})
    set_priorities(recorder.replay, {2: 1.0})
    recorder.add_episode(2)
    assert recorder.replay.priority[6:8].tolist() == [7.0, 7.0]
    assert recorder.replay.priority[2] == 1.0
    set_priorities(recorder.replay, {2: 9.0, 3: 8.0})
    recorder.add_episode(1)
    assert recorder.replay.priority[9] == 9.0


def test_a_step_counts_as_new_when_its_outcome_comes_in():
    """The priority rises between an observation and the step that leaves it, as updates in a run do."""
    recorder = recorded()
    recorder.begin()
    recorder.add()
    set_priorities(recorder.replay, {0: 5.0})
    recorder.add()
    assert recorder.replay.priority[:2].tolist() == [5.0, 5.0]


def test_the_observation_that_an_episode_ends_with_counts_as_new_too():
    """No step leaves it, but windows across episodes begin there."""
    recorder = recorded(4, frame_stack=1)
    set_priorities(recorder.replay, {1: 5.0})
    recorder.add_episode(2)  # slots 5, 6 and 7
    assert recorder.replay.priority[:8].tolist() == [1.0, 5.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]


def test_an_overwritten_slot_forgets_its_priority():
    recorder = recorded(11, capacity=12)
    set_priorities(recorder.replay, {0: 0.25, 1: 0.5, 5: 3.0})
    recorder.add_episode(2)
    assert recorder.replay.priority[:2].tolist() == [3.0, 3.0]


def test_only_the_given_steps_change_priority():
    replay = recorded(5).replay
    set_priorities(replay, {3: 4.0})
    assert replay.priority[:5].tolist() == [1.0, 1.0, 1.0, 4.0, 1.0]


@pytest.mark.parametrize("priority", [12.0, 0.1, math.nan, math.inf])
def test_a_skipped_update_changes_no_priority(priority):
    recorder = recorded(5)
    set_priorities(recorder.replay, {2: 7.0, 3: 2.0})
    before = recorder.replay.priority.clone()
    set_priorities(recorder.replay, {1: priority, 2: priority, 3: 1.0}, SKIP)
    assert torch.equal(recorder.replay.priority, before)
    recorder.add_episode(2)
    assert recorder.replay.priority[6:8].tolist() == [7.0, 7.0]


def test_mean_absolute_reward_of_nothing_is_zero():
    assert recorded().replay.mean_absolute_reward() == 0.0


def test_mean_absolute_reward_is_over_steps_not_slots():
    replay = recorded(2, 1).replay
    # Episode 0: 0.5, -1.5; episode 1: 1000.5; the last observations have no reward.
    assert replay.mean_absolute_reward().item() == pytest.approx((0.5 + 1.5 + 1000.5) / 3)


def test_mean_absolute_reward_forgets_what_was_overwritten():
    recorder = recorded(5, capacity=9)
    recorder.add_episode(9)
    # Frames 1 .. 9 of episode 1 are stored; the stack of s_1 and s_2 is not, so steps 3 .. 8 count.
    mean = sum(1000.5 + step for step in range(3, 9)) / 6
    assert recorder.replay.mean_absolute_reward().item() == pytest.approx(mean)
