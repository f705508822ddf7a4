"""Your own environment in twenty lines: `ogspr rollout examples.chase:make`."""

import gymnasium
import numpy as np


class Chase(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steer the white square onto the red one; each step costs the distance."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.goal, self.place = self.np_random.uniform(8, 56, (2, 2))
        return self._picture(), {}

    def step(self, action: np.ndarray):
        self.place = np.clip(self.place + action, 4, 60)
        distance = float(np.linalg.norm(self.goal - self.place))
        return self._picture(), -distance / 64, distance < 4, False, {}

    def _picture(self) -> np.ndarray:
        picture = np.zeros((64, 64, 3), np.uint8)
        for (row, column), colour in ((self.goal, (255, 0, 0)), (self.place, (255, 255, 255))):
            picture[int(row) - 3 : int(row) + 4, int(column) - 3 : int(column) + 4] = colour
        return picture


def make() -> gymnasium.Env[np.ndarray, np.ndarray]:
    return gymnasium.wrappers.TimeLimit(Chase(), max_episode_steps=200)
