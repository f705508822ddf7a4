"""A replay that remembers everything, in plain lists, and says what windows may be drawn.

Observation = index: frames, actions and rewards tell the episode and the step they belong to, so that
whatever a replay draws can be traced back.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from ogspr.device import CPU
from ogspr.replay import Replay, ReplayShape
from ogspr.types import Draw, TimeStep, Window

FRAME_SHAPE = (2, 3, 4)
ACTION_SIZE = 3
BLANK = np.zeros(0)


class Place(NamedTuple):
    """The observation s_step of an episode."""

    episode: int
    step: int


@dataclass
class Episode:
    observations: list[np.ndarray]  # one more than there are steps
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminals: list[bool] = field(default_factory=list)  # lost lives, too

    def known(self, start: int, horizon: int) -> list[bool]:
        """Which of the steps that count in a window are terminal: the last one at most."""
        terminals = self.terminals[start : start + horizon]
        return terminals[: terminals.index(True) + 1] if True in terminals else terminals


def frame_of(place: Place) -> np.ndarray:
    """A picture that is like no other: its first four pixels count, the others tell channels and rows."""
    frame = np.arange(np.prod(FRAME_SHAPE), dtype=np.uint8)
    frame[:4] = *divmod(place.episode, 256), *divmod(place.step, 256)
    return frame.reshape(FRAME_SHAPE)


def place_of(frame: np.ndarray) -> Place:
    episode_high, episode, step_high, step = (int(pixel) for pixel in frame.ravel()[:4])
    return Place(256 * episode_high + episode, 256 * step_high + step)


def action_of(place: Place) -> np.ndarray:
    return np.array([place.episode, place.step, -1.0 - place.step], np.float32)


def reward_of(place: Place) -> float:
    """Never 0, of both signs."""
    return (place.episode * 1000 + place.step + 0.5) * (-1) ** place.step


def time_step(observation: np.ndarray, reward: float = 0.0, **flags) -> TimeStep:
    ends = {"terminated": False, "truncated": False} | flags
    return TimeStep(observation, reward, score=99.0, frames=2, proprioception=BLANK, **ends)


def evenly(count: int) -> torch.Tensor:
    """Numbers in [0, 1), each in the middle of its share."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def make_replay(capacity: int, frame_stack: int = 3, longest_horizon: int = 5) -> Replay:
    shape = ReplayShape(capacity, FRAME_SHAPE, frame_stack, ACTION_SIZE, longest_horizon)
    return Replay(shape, CPU)


class Recorder:
    """Feeds a replay and keeps the episodes beside it."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.episodes: list[Episode] = []
        self.stored: deque[Place] = deque(maxlen=replay.shape.capacity)  # whose frames the ring still has

    def begin(self, fault: str = "") -> None:
        place = Place(len(self.episodes), 0)
        stack = np.concatenate([frame_of(place)] * self.replay.shape.frame_stack)
        self.replay.begin(time_step(stack, fault=fault))
        self.episodes.append(Episode([stack]))
        self.stored.append(place)

    def add(
        self, terminated: bool = False, truncated: bool = False, fault: str = "", lost_life: bool = False
    ) -> None:
        episode = self.episodes[-1]
        here = Place(len(self.episodes) - 1, len(episode.actions))
        there = Place(here.episode, here.step + 1)
        stack = np.concatenate((episode.observations[-1][FRAME_SHAPE[0] :], frame_of(there)))
        ends = {"terminated": terminated, "truncated": truncated, "fault": fault, "lost_life": lost_life}
        self.replay.add(action_of(here), time_step(stack, reward_of(here), **ends))
        if fault and (terminated or truncated):
            return
        episode.observations.append(stack)
        episode.actions.append(action_of(here))
        episode.rewards.append(reward_of(here))
        episode.terminals.append(terminated or lost_life)
        self.stored.append(there)

    def add_episode(self, steps: int, **end: bool) -> None:
        """One that ends as told: terminated=True, truncated=True, or without a word."""
        self.begin()
        for _ in range(steps - 1):
            self.add()
        self.add(**end)

    def valid_places(self, horizon: int) -> set[Place]:
        return {place for place in self.stored if self.is_valid(place, horizon)}

    def runs(self, horizon: int) -> dict[Place, list[Place]]:
        """By where they begin, all observations that were stored in a row, `horizon` steps long."""
        stored = list(self.stored)
        runs = {stored[i]: stored[i : i + horizon + 1] for i in range(len(stored) - horizon)}
        return {start: run for start, run in runs.items() if self.has_stack(start)}

    def has_stack(self, place: Place) -> bool:
        """All frames of its stack are stored."""
        oldest = max(0, place.step - self.replay.shape.frame_stack + 1)
        return all(Place(place.episode, step) in self.stored for step in range(oldest, place.step + 1))

    def is_valid(self, start: Place, horizon: int) -> bool:
        """Its stack is stored, and it has `horizon` outcomes or a terminal before that many."""
        episode = self.episodes[start.episode]
        known = episode.known(start.step, horizon)
        complete = len(known) == horizon or (len(known) > 0 and known[-1])
        needed = range(start.step, start.step + len(known) + 1)
        stored = all(Place(start.episode, step) in self.stored for step in needed)
        return complete and stored and self.has_stack(start)


def drawable(replay: Replay, horizon: int, **draw: bool) -> Window:
    """Every window that can be drawn, once each: with equal priorities no start escapes so fine a comb."""
    places = evenly(2 * replay.shape.capacity)
    (window,) = replay.draw([(Draw(len(places), horizon, **draw), places)])
    starts = window.starts.tolist()
    once = sorted(starts.index(start) for start in set(starts))
    fields = {name: getattr(window, name)[once] for name in Window._fields if name != "frames"}
    return window._replace(**fields)


def start_places(window: Window) -> list[Place]:
    newest = window.newest_frame(0)[:, 0]
    return [place_of(frame) for frame in window.frames[newest].numpy()]


def check_windows(recorder: Recorder, horizon: int) -> None:
    """What can be drawn is what the lists allow, and every field of it is what the lists hold."""
    expected = recorder.valid_places(horizon)
    assert recorder.replay.valid_starts(horizon) == len(expected)
    if not expected:
        assert int(recorder.replay.reach.max()) < horizon
        return
    window = drawable(recorder.replay, horizon)
    places = start_places(window)
    assert sorted(places) == sorted(expected)
    assert window.rows.shape == (len(places), recorder.replay.shape.frame_stack + horizon)
    for k in range(horizon + 1):
        check_observations(recorder, places, window, k)
    for place, actions, rewards, alive, first in fields_of(places, window):
        assert first == [place.step + k == 0 for k in range(horizon + 1)]
        episode = recorder.episodes[place.episode]
        steps = slice(place.step, place.step + horizon)
        ended = episode.known(place.step, horizon)
        known = len(ended)  # less than the horizon only where the last one is terminal
        assert alive == [1.0] + [float(not terminal) for terminal in ended] + [0.0] * (horizon - known)
        assert rewards[:known] == episode.rewards[steps][:known]
        assert actions[:known] == [action.tolist() for action in episode.actions[steps][:known]]


def check_runs(recorder: Recorder, horizon: int, **draw: bool) -> None:
    """The same of windows across episodes, whose fields all have a meaning."""
    expected = recorder.runs(horizon)
    assert recorder.replay.valid_starts(horizon, across_episodes=True) == len(expected)
    if not expected:
        return
    window = drawable(recorder.replay, horizon, across_episodes=True, **draw)
    starts = start_places(window)
    assert sorted(starts) == sorted(expected)
    for row, (start, actions, rewards, alive, first) in enumerate(fields_of(starts, window)):
        places = expected[start]
        for k, place in enumerate(places):
            stack = window.frames[window.stack(k)[row]].flatten(0, 1).numpy()
            assert np.array_equal(stack, recorder.episodes[place.episode].observations[place.step])
        assert first == [place.step == 0 for place in places]
        assert alive[0] == 1.0
        for k, (here, there) in enumerate(pairwise(places)):
            leads_on = there == Place(here.episode, here.step + 1)
            assert actions[k] == (action_of(here) if leads_on else np.zeros(ACTION_SIZE)).tolist()
            assert rewards[k] == (reward_of(here) if leads_on else 0.0)
            terminal = leads_on and recorder.episodes[here.episode].terminals[here.step]
            assert alive[k + 1] == float(not terminal)


def fields_of(places: list[Place], window: Window):
    """Place, actions, rewards, alive and first of each window."""
    names = ("actions", "rewards", "alive", "first")
    return zip(places, *(getattr(window, name).tolist() for name in names), strict=True)


def check_observations(recorder: Recorder, places: list[Place], window: Window, k: int) -> None:
    """The stacks s_{t+k} of all windows that go so far, the observation a terminal led to included."""
    observations = [recorder.episodes[place.episode].observations[place.step :] for place in places]
    rows = [row for row, following in enumerate(observations) if k < len(following)]
    if rows:
        drawn = window.frames[window.stack(k)[rows]].flatten(1, 2).numpy()
        assert np.array_equal(drawn, np.stack([observations[row][k] for row in rows]))
