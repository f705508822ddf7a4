"""Small Gymnasium worlds, some of which misbehave on purpose; named as `tests.helpers.worlds:factory`."""

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from ogspr.errors import UserError


class Counter(gymnasium.Env):
    """Shows the number of steps as brightness, and rewards it; ends after `length` steps."""

    action_space = spaces.Discrete(3, start=-1)
    observation_space = spaces.Box(0, 255, (84, 84), np.uint8)

    def __init__(self, length: int = 10, **spaces_instead) -> None:
        self.length = length
        for name, space in spaces_instead.items():
            setattr(self, name, space)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.count = 0
        return self.picture(), {}

    def step(self, action):
        self.last_action = action
        self.count += 1
        return self.picture(), float(self.count), self.count >= self.length, False, {}

    def picture(self):
        return np.full(self.observation_space.shape, self.count % 256, np.uint8)


class Unrepeatable(Counter):
    def picture(self):
        return np.frombuffer(os.urandom(84 * 84), np.uint8).reshape(84, 84)


class Misbehaving(Counter):
    """Does `what` at the third step."""

    def __init__(self, what) -> None:
        super().__init__()
        self.what = what

    def step(self, action):
        if self.count == 2:
            self.what()
        return super().step(action)


class OwnSnapshot(Counter):
    """Has methods of an `Environment` by accident."""

    spec = None

    def snapshot(self):
        raise AssertionError("never called")

    restore = snapshot


class NeedsALibrary(Counter):
    def picture(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")


class FloatPictures(Counter):
    def picture(self):
        return np.full((84, 84), 0.5, np.float32)


class WrongShape(Counter):
    def picture(self):
        return np.zeros((10, 10), np.uint8)


class InfiniteReward(Counter):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float("inf") if self.count == 3 else reward, terminated, truncated, info


def _raise() -> None:
    raise ValueError("the world fell apart")


def counter():
    return Counter()


def counter_with_seed(seed: int):
    env = Counter()
    env.given_seed = seed
    return env


def endless():
    return Counter(length=10**9)


def unrepeatable():
    return Unrepeatable()


def raising():
    return Misbehaving(_raise)


def exiting():
    return Misbehaving(lambda: os._exit(7))


def killed():
    return Misbehaving(lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfaulting():
    import faulthandler

    return Misbehaving(faulthandler._sigsegv)


def slow():
    return Misbehaving(lambda: time.sleep(60))


def infinite_reward():
    return InfiniteReward()


def with_own_snapshot():
    return OwnSnapshot()


def needs_a_library():
    return NeedsALibrary()


def float_pictures():
    return FloatPictures()


def wrong_shape():
    return WrongShape()


def unbuildable():
    raise ZeroDivisionError("cannot be built")


def refusing():
    raise UserError("this world needs a moon.")


def not_an_environment():
    return 42


def dict_actions():
    return Counter(action_space=spaces.Dict({"a": spaces.Discrete(2)}))


def unbounded_actions():
    return Counter(action_space=spaces.Box(-np.inf, np.inf, (2,), np.float32))


def matrix_actions():
    return Counter(action_space=spaces.Box(np.float32([[0, 2]]), np.float32([[4, 6]]), (1, 2), np.float32))


def vector_observations():
    return Counter(observation_space=spaces.Box(-1, 1, (4,), np.float32))


class Drift(gymnasium.Env):
    """A square that drifts at random and is pushed by the action; the closer to the middle, the better.

    Episodes end after 12 steps, or earlier where it reaches the border.
    """

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place = self.np_random.uniform(12, 24, 2)
        self.steps = 0
        return self.picture(), {}

    def step(self, action):
        self.place = self.place + 2 * action + self.np_random.normal(0, 1, 2)
        self.steps += 1
        outside = bool((self.place < 4).any() or (self.place > 32).any())
        reward = 1 - float(np.linalg.norm(self.place - 18)) / 18
        return self.picture(), reward, outside, self.steps >= 12, {}

    def picture(self):
        picture = np.zeros((36, 36, 3), np.uint8)
        row, column = np.clip(self.place, 3, 33).astype(int)
        picture[row - 3 : row + 3, column - 3 : column + 3] = (255, 128, 0)
        return picture


def drift():
    return Drift()
