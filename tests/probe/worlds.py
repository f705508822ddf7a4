"""A tiny world with a state beside its pictures; named as `tests.probe.worlds:factory`."""

import numpy as np

from ogspr.envs.pixels import PixelEnvironment
from ogspr.envs.protocol import RawStep
from ogspr.errors import SimulationFault
from ogspr.types import ContinuousActions, EnvSpec

LENGTH = 12
SIZE = 36


class Puck:
    """A square that slides where it is pushed; its state is place and speed. Some episodes end in a fault.

    Args:
        seed: Decides where episodes begin.
        faults: At which step the simulator fails, by episode.
    """

    def __init__(self, seed: int, faults: dict[int, int] | None = None, length: int = LENGTH) -> None:
        self.rng = np.random.default_rng(seed)
        self.faults = faults or {}
        self.length = length
        self.episode = -1
        self.spec = EnvSpec(
            "puck", (3, SIZE, SIZE), 3, ContinuousActions(2), 1, length, proprioception_size=4
        )

    def reset(self) -> RawStep:
        self.episode += 1
        self.place, self.speed = self.rng.uniform(8, 28, 2), self.rng.normal(0, 1, 2)
        self.steps = 0
        return self.seen()

    def step(self, action) -> RawStep:
        self.steps += 1
        if self.faults.get(self.episode) == self.steps:
            raise SimulationFault("the puck is gone")
        self.speed = 0.9 * self.speed + action
        self.place = np.clip(self.place + self.speed, 3, SIZE - 3)
        return self.seen(reward=float(self.place.sum()), truncated=self.steps >= self.length)

    def seen(self, **about) -> RawStep:
        picture = np.zeros((3, SIZE, SIZE), np.uint8)
        row, column = self.place.astype(int)
        picture[:, row - 3 : row + 3, column - 3 : column + 3] = 255
        picture[0, 0, 0] = self.steps
        return RawStep(picture, frames=1, proprioception=np.concatenate((self.place, self.speed)), **about)

    def state(self):
        return {
            "rng": self.rng.bit_generator.state,
            "place": self.place.copy(),
            "speed": self.speed.copy(),
            "steps": self.steps,
            "episode": self.episode,
        }

    def set_state(self, state) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.place, self.speed = np.array(state["place"]), np.array(state["speed"])
        self.steps, self.episode = state["steps"], state["episode"]

    def close(self) -> None: ...


def puck(seed: int) -> PixelEnvironment:
    return PixelEnvironment(Puck(seed))
