"""Playing environments and writing down what came out, in this process or in another one."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ogspr.envs import Environment, EnvOptions, make
from ogspr.records.tree import load_tree
from ogspr.types import TimeStep

ROOT = Path(__file__).parent.parent.parent
SNAPSHOT = "snapshot"  # the kind of the files that snapshots are handed over in


def fingerprint(step: TimeStep) -> str:
    """Everything about a time step, to the bit."""
    parts = (
        step.observation.tobytes(),
        step.proprioception.tobytes(),
        np.array([step.reward, step.score], np.float64).tobytes(),
        repr((step.terminated, step.truncated, step.lost_life, step.frames, step.fault)).encode(),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()


def play(env: Environment, steps: int, seed: int) -> list[str]:
    """Fingerprints of `steps` random steps; a finished episode is followed by a reset."""
    rng = np.random.default_rng(seed)
    prints = []
    last = False
    for _ in range(steps):
        step = env.reset() if last else env.step(env.spec.actions.sample(rng))
        prints.append(fingerprint(step))
        last = step.last
    return prints


def continuation(env: Environment) -> list[str]:
    """What a restored environment must repeat: the episode, a reset, the next episode."""
    return [*play(env, 4, seed=11), fingerprint(env.reset()), *play(env, 3, seed=12)]


def in_another_process(job: str, *arguments: str, **variables: str) -> Any:
    """Runs `python -m tests.helpers.trajectories job ...` and returns the JSON it prints."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.trajectories", job, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _continue_snapshots(*arguments: str) -> dict[str, list[str]]:
    """NAME=FILE ...: restores each snapshot into a fresh environment with another seed."""
    results = {}
    for argument in arguments:
        name, _, file = argument.partition("=")
        env = make(name, seed=999, training=True)
        current = env.restore(load_tree(Path(file), SNAPSHOT))
        results[name] = [fingerprint(current), *continuation(env)]
        env.close()
    return results


def _play_seeds(name: str, steps: str, *seeds: str) -> dict[str, list[str]]:
    results = {}
    for seed in seeds:
        env = make(name, seed=int(seed), options=EnvOptions())
        results[seed] = [fingerprint(env.reset()), *play(env, int(steps), seed=5)]
        env.close()
    return results


if __name__ == "__main__":
    jobs = {"continue": _continue_snapshots, "seeds": _play_seeds}
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
