"""Windows drawn from the ring against a list of episodes that forgets nothing it should keep."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.ops.values import n_step_return
from ogspr.replay import Replay, ReplayShape
from ogspr.types import Draw, TimeStep
from tests.replay.model import (
    FRAME_SHAPE,
    Place,
    Recorder,
    check_runs,
    check_windows,
    drawable,
    evenly,
    make_replay,
    place_of,
    start_places,
    time_step,
)

STORED = ("frames", "numbers", "age", "reach", "priority")


def recorder(capacity: int = 40, frame_stack: int = 3, longest_horizon: int = 5) -> Recorder:
    return Recorder(make_replay(capacity, frame_stack, longest_horizon))


def check_all_horizons(recorded: Recorder) -> None:
    for horizon in range(1, recorded.replay.shape.longest_horizon + 1):
        check_windows(recorded, horizon)


def steps_of_episode(recorded: Recorder, episode: int, horizon: int) -> list[int]:
    """Which steps of one episode can be drawn."""
    places = start_places(drawable(recorded.replay, horizon))
    return sorted(place.step for place in places if place.episode == episode)


def record_anything(recorded: Recorder, rng: np.random.Generator, mean_length: float):
    """Episodes of random lengths, ended in every way there is; yields after each call of the replay."""
    while True:
        recorded.begin(fault="a reset that failed before" if rng.random() < 0.1 else "")
        yield
        for _ in range(rng.geometric(1.0 / mean_length) - 1):
            recorded.add(fault="a warning" if rng.random() < 0.1 else "", lost_life=rng.random() < 0.15)
            yield
        end = rng.integers(6)
        if end == 5:  # interrupted: nobody told how the episode ended
            continue
        fault = "physics diverged" if end in (3, 4) else ""
        lost_life = rng.random() < 0.15
        recorded.add(end in (0, 1, 3), end in (1, 2, 4), fault, lost_life)
        yield


@pytest.mark.parametrize(
    ("capacity", "frame_stack", "longest_horizon", "mean_length"),
    [
        (9, 3, 5, 4.0),  # as small as can be: every step overwrites what a stack needs
        (9, 3, 5, 40.0),  # episodes longer than the ring
        (23, 3, 5, 1.5),  # many episodes of one step
        (24, 4, 3, 6.0),
        (16, 1, 4, 5.0),  # no stacking
        (5, 3, 1, 3.0),
        (12, 2, 9, 7.0),  # horizons nearly as long as the ring
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_after_every_step_exactly_the_right_windows_can_be_drawn(
    capacity, frame_stack, longest_horizon, mean_length, seed
):
    recorded = recorder(capacity, frame_stack, longest_horizon)
    history = record_anything(recorded, np.random.default_rng(seed), mean_length)
    for _ in range(120):
        next(history)
        check_all_horizons(recorded)


def test_at_the_start_of_an_episode_the_stack_repeats_the_first_frame():
    recorded = recorder()
    recorded.add_episode(steps=3)
    recorded.add_episode(steps=4)
    window = drawable(recorded.replay, 1)
    row = start_places(window).index(Place(1, 0))
    oldest, middle, newest = window.stack(0)[row].tolist()
    assert oldest == middle == newest
    following = window.stack(1)[row].tolist()
    assert following[:2] == [newest, newest]
    assert following[2] == window.newest_frame(1)[row, 0] != newest


def test_windows_and_stacks_go_across_the_end_of_the_ring():
    recorded = recorder(capacity=12)
    recorded.add_episode(steps=20)
    window = drawable(recorded.replay, 3)
    rows = window.rows.tolist()
    assert any({11, 0} <= set(row) for row in rows)
    assert all((after - before) % 12 == 1 for row in rows for before, after in pairwise(row))
    check_all_horizons(recorded)


def test_an_episode_longer_than_the_ring_keeps_its_newest_steps():
    recorded = recorder(capacity=12)
    recorded.add_episode(steps=100)
    # Frames 89 .. 100 are stored, so stacks begin with 91; the window's last observation is 100 at most.
    assert steps_of_episode(recorded, 0, horizon=1) == list(range(91, 100))
    assert steps_of_episode(recorded, 0, horizon=5) == list(range(91, 96))


def test_no_window_goes_through_a_truncation():
    recorded = recorder()
    recorded.add_episode(steps=6, truncated=True)
    recorded.add_episode(steps=6)
    assert steps_of_episode(recorded, 0, horizon=3) == [0, 1, 2, 3]


def test_the_observation_at_a_truncation_can_end_a_window():
    recorded = recorder()
    recorded.add_episode(steps=6, truncated=True)
    recorded.begin()
    window = drawable(recorded.replay, 3)
    row = start_places(window).index(Place(0, 3))
    last_observation = window.frames[window.stack(3)[row]].flatten(0, 1).numpy()
    np.testing.assert_array_equal(last_observation, recorded.episodes[0].observations[6])
    assert window.alive[row].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_windows_that_meet_a_terminal_are_valid_and_dead_from_there_on():
    recorded = recorder()
    recorded.add_episode(steps=6, terminated=True)
    assert steps_of_episode(recorded, 0, horizon=3) == [0, 1, 2, 3, 4, 5]
    window = drawable(recorded.replay, 3)
    alive = dict(zip(start_places(window), window.alive.tolist(), strict=True))
    assert alive[Place(0, 2)] == [1.0, 1.0, 1.0, 1.0]
    assert alive[Place(0, 3)] == [1.0, 1.0, 1.0, 0.0]
    assert alive[Place(0, 4)] == [1.0, 1.0, 0.0, 0.0]
    assert alive[Place(0, 5)] == [1.0, 0.0, 0.0, 0.0]


def record_a_lost_life(longest_horizon: int = 5) -> Recorder:
    """Nine steps, with which of the fourth a life is lost."""
    recorded = recorder(longest_horizon=longest_horizon)
    recorded.begin()
    for step in range(9):
        recorded.add(lost_life=step == 3)
    return recorded


def test_windows_end_at_a_lost_life_and_begin_after_it():
    recorded = record_a_lost_life()
    assert steps_of_episode(recorded, 0, horizon=3) == [0, 1, 2, 3, 4, 5, 6]
    window = drawable(recorded.replay, 3)
    places = [place.step for place in start_places(window)]
    alive = dict(zip(places, window.alive.tolist(), strict=True))
    assert alive[0] == [1.0, 1.0, 1.0, 1.0]
    assert alive[1] == [1.0, 1.0, 1.0, 0.0]
    assert alive[2] == [1.0, 1.0, 0.0, 0.0]
    assert alive[3] == [1.0, 0.0, 0.0, 0.0]
    assert alive[4] == alive[5] == alive[6] == [1.0, 1.0, 1.0, 1.0]
    returns = dict(zip(places, n_step_return(window.rewards, window.alive, 0.5).tolist(), strict=True))
    assert returns[0] == 0.5 - 0.5 * 1.5 + 0.25 * 2.5
    assert returns[2] == 2.5 - 0.5 * 3.5  # not what came after the loss
    assert returns[3] == -3.5
    assert returns[4] == 4.5 - 0.5 * 5.5 + 0.25 * 6.5


def test_a_lost_life_is_known_at_once_and_stays_when_the_game_goes_on():
    recorded = recorder()
    recorded.begin()
    recorded.add()
    recorded.add(lost_life=True)
    assert steps_of_episode(recorded, 0, horizon=5) == [0, 1]
    for _ in range(4):
        recorded.add()
        assert steps_of_episode(recorded, 0, horizon=5) == [0, 1]
        check_all_horizons(recorded)
    recorded.add()
    assert steps_of_episode(recorded, 0, horizon=5) == [0, 1, 2]


def test_stacks_after_a_lost_life_reach_back_over_it():
    recorded = record_a_lost_life()
    window = drawable(recorded.replay, 3)
    row = [place.step for place in start_places(window)].index(4)
    seen = [place_of(frame).step for frame in window.frames[window.stack(0)[row]].numpy()]
    assert seen == [2, 3, 4]


def test_a_ring_forgets_a_lost_life_like_any_step():
    recorded = recorder(capacity=12)
    recorded.begin()
    for step in range(60):
        recorded.add(lost_life=step % 7 == 3)
        check_all_horizons(recorded)


def test_a_life_lost_where_the_episode_is_cut_counts_as_terminal():
    recorded = recorder()
    recorded.begin()
    recorded.add()
    recorded.add(lost_life=True, truncated=True)
    assert recorded.replay.valid_starts(5) == 2
    with pytest.raises(RuntimeError, match="begin"):
        recorded.add()


def test_a_step_both_terminated_and_truncated_counts_as_terminal():
    recorded = recorder()
    recorded.add_episode(steps=2, terminated=True, truncated=True)
    assert recorded.replay.valid_starts(5) == 2


@pytest.mark.parametrize(("end", "starts"), [("terminated", 1), ("truncated", 0)])
def test_an_episode_of_one_step(end, starts):
    recorded = recorder()
    recorded.add_episode(steps=1, **{end: True})
    assert recorded.replay.valid_starts(1) == 1
    assert recorded.replay.valid_starts(2) == starts


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_step_at_which_the_simulator_failed_is_not_recorded(end):
    recorded = recorder()
    recorded.begin()
    recorded.add()
    recorded.add()
    before = [getattr(recorded.replay, name).clone() for name in STORED]
    recorded.add(fault="physics diverged", **{end: True})
    assert recorded.replay.valid_starts(1) == 2
    assert recorded.replay.valid_starts(3) == 0
    for stored, was in zip((getattr(recorded.replay, name) for name in STORED), before, strict=True):
        assert torch.equal(stored, was)


@pytest.mark.parametrize(
    "end", [{}, {"terminated": True}, {"truncated": True}, {"truncated": True, "fault": "physics diverged"}]
)
def test_adding_needs_a_begun_episode(end):
    recorded = recorder()
    if end:
        recorded.add_episode(steps=2, **end)
    stack = np.concatenate([np.zeros(FRAME_SHAPE, np.uint8)] * 3)
    with pytest.raises(RuntimeError, match="begin"):
        recorded.replay.add(np.zeros(3), time_step(stack))
    recorded.begin()
    recorded.add()


def test_a_slot_whose_stack_lost_a_frame_is_no_start_any_more():
    recorded = recorder(capacity=10, longest_horizon=4)
    recorded.add_episode(steps=9, truncated=True)  # fills the ring to the last slot
    assert steps_of_episode(recorded, 0, horizon=4) == [0, 1, 2, 3, 4, 5]
    recorded.begin()  # overwrites o_0, which s_1 and s_2 still showed
    assert steps_of_episode(recorded, 0, horizon=4) == [3, 4, 5]
    recorded.add()
    assert steps_of_episode(recorded, 0, horizon=4) == [4, 5]


def test_overwriting_does_not_touch_an_episode_that_begins_behind_it():
    recorded = recorder(capacity=10, longest_horizon=4)
    recorded.add_episode(steps=1, truncated=True)
    recorded.add_episode(steps=7, truncated=True)
    recorded.begin()
    recorded.add()  # the first episode is gone now; the second begins in the next slot
    assert steps_of_episode(recorded, 0, horizon=1) == []
    assert steps_of_episode(recorded, 1, horizon=1) == [0, 1, 2, 3, 4, 5, 6]


def test_an_interrupted_episode_ends_like_a_truncated_one():
    recorded = recorder()
    recorded.begin()
    recorded.begin()
    for _ in range(4):
        recorded.add()
    recorded.begin()
    for _ in range(4):
        recorded.add()
    check_all_horizons(recorded)
    assert recorded.replay.valid_starts(3) == 4
    assert recorded.replay.valid_starts(1) == 8


def test_all_drawn_windows_share_the_stored_frames():
    recorded = recorder()
    recorded.add_episode(steps=9)
    wanted = [(Draw(2, 3), evenly(2)), (Draw(4, 5), evenly(4))]
    short, long = recorded.replay.draw(wanted)
    assert short.frames.data_ptr() == long.frames.data_ptr() == recorded.replay.frames.data_ptr()
    assert (short.horizon, long.horizon) == (3, 5)
    assert (len(short.starts), len(long.starts)) == (2, 4)


def test_a_ring_that_cannot_hold_one_window_is_refused():
    ReplayShape(9, FRAME_SHAPE, 3, 1, 5)
    with pytest.raises(UserError, match="at least 9 steps, got 8"):
        ReplayShape(8, FRAME_SHAPE, 3, 1, 5)


@pytest.mark.parametrize(
    ("action", "picture"),
    [
        (np.zeros(9), None),
        (None, np.zeros((1, 2, 3), np.uint8)),
        (None, "float"),
    ],
    ids=["action", "shape", "type"],
)
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(action, picture):
    replay = Replay(ReplayShape(20, (1, 3, 3), 2, 2, 3), CPU)
    good = np.zeros((2, 3, 3), np.uint8)
    bad = good.astype(np.float32) if isinstance(picture, str) else good if picture is None else picture

    def step(observation):
        return TimeStep(observation, 0.0, 0.0, False, False, 1, np.zeros(0))

    replay.begin(step(good))
    replay.add(np.zeros(2), step(good))
    with pytest.raises(ValueError, match="expected"):
        replay.add(np.zeros(2) if action is None else action, step(bad))
    assert [replay.valid_starts(horizon) for horizon in (1, 2)] == [1, 0]
    replay.add(np.zeros(2), step(good))
    assert [replay.valid_starts(horizon) for horizon in (1, 2)] == [2, 1]
    assert int((replay.reach > 0).sum()) == 2


# --- across episodes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "frame_stack", "mean_length"),
    [
        (7, 1, 4.0),
        (7, 1, 40.0),  # episodes longer than the ring
        (9, 3, 40.0),
        (23, 1, 1.5),  # many episodes of one step
        (23, 3, 1.5),
        (40, 4, 6.0),
        (40, 1, 6.0),
    ],
)
@pytest.mark.parametrize("draw", [{}, {"by_priority": False}], ids=["by priority", "uniform"])
def test_after_every_step_all_runs_across_episodes_can_be_drawn(capacity, frame_stack, mean_length, draw):
    recorded = recorder(capacity, frame_stack)
    history = record_anything(recorded, np.random.default_rng(0), mean_length)
    for _ in range(120):
        next(history)
        for horizon in range(1, 6):
            check_runs(recorded, horizon, **draw)


def test_what_lies_between_two_episodes_is_no_step():
    """A terminal, a truncation and an interruption: two steps each, then the next episode begins."""
    recorded = recorder(frame_stack=1)
    recorded.add_episode(steps=2, terminated=True)
    recorded.add_episode(steps=2, truncated=True)
    recorded.add_episode(steps=2)
    recorded.begin()
    window = drawable(recorded.replay, 9, across_episodes=True)
    assert window.first.tolist() == [[True, False, False] * 3 + [True]]
    assert window.alive.tolist() == [[1, 1, 0] + [1] * 7]  # what comes after the terminal counts again
    assert window.rewards.tolist() == [[0.5, -1.5, 0, 1000.5, -1001.5, 0, 2000.5, -2001.5, 0]]
    assert not window.actions[0, [2, 5, 8]].any()


def test_a_lost_life_within_an_episode_is_terminal_and_begins_nothing():
    recorded = recorder(frame_stack=1)
    recorded.begin()
    for step in range(5):
        recorded.add(lost_life=step == 2)
    window = drawable(recorded.replay, 5, across_episodes=True)
    assert window.first.tolist() == [[True] + [False] * 5]
    assert window.alive.tolist() == [[1, 1, 1, 0, 1, 1]]
    assert window.rewards.all()


def test_stacks_across_episodes_stay_within_their_own():
    """Two steps, then the next episode: its first frame three times, and nothing of the one before."""
    recorded = recorder(frame_stack=3)
    recorded.add_episode(steps=2, truncated=True)
    recorded.begin()
    recorded.add()
    window = drawable(recorded.replay, 4, across_episodes=True)
    stacks = [window.stack(k)[0].tolist() for k in range(5)]
    assert stacks == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [3, 3, 3], [3, 3, 4]]
    assert [window.newest_frame(k).tolist() for k in range(5)] == [[[slot]] for slot in range(5)]


def test_peeking_gives_the_windows_that_drawing_gives():
    recorded = recorder(frame_stack=1)
    recorded.add_episode(steps=9)
    wanted = [(Draw(4, 3), evenly(4)), (Draw(4, 2, by_priority=False, across_episodes=True), evenly(4))]
    for seen, drawn in zip(recorded.replay.peek(wanted), recorded.replay.draw(wanted), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(seen, drawn, strict=True))
