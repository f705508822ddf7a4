"""What dm_control itself draws and rewards; a program, because its renderer and ours share no process.

usage: python -m tests.helpers.dm_control_reference OUT.npz AGENT_STEPS TASK=CAMERA ...
For each task: frames (steps + 1, 84, 84, 3), and the rewards of all raw steps (steps, 2).
"""

import logging
import os
import sys

import numpy as np
from dm_control import suite


def main(out: str, steps: int, tasks: list[str]) -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)
    arrays = {}
    for entry in tasks:
        task, _, camera = entry.partition("=")
        domain, _, name = task.partition("-")
        env = suite.load(domain, name, task_kwargs={"random": 3})
        spec = env.action_spec()
        rng = np.random.default_rng(7)
        env.reset()
        frames, rewards = [env.physics.render(84, 84, int(camera))], []
        for _ in range(steps):
            unit = rng.uniform(-1, 1, spec.shape).astype(np.float32).astype(np.float64)
            exact = np.all((spec.minimum == -1) & (spec.maximum == 1)) or spec.maximum[0] > 1e6
            action = unit if exact else spec.minimum + (unit + 1) / 2 * (spec.maximum - spec.minimum)
            rewards.append([env.step(action).reward for _ in range(2)])
            frames.append(env.physics.render(84, 84, int(camera)))
        arrays[f"{task}/frames"] = np.array(frames)
        arrays[f"{task}/rewards"] = np.array(rewards)
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # dm_control's renderer raises while the interpreter ends
