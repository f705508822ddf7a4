"""Small grids, and a stand-in for `ogspr train` that keeps its promises with a counter."""

import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from ogspr.sweep.grid import Unit
from ogspr.sweep.supervise import Launch

TASK = "tests.helpers.worlds:counter"
TABLES = ("train.csv", "episodes.csv", "eval.csv")
TINY = """
agent_steps = 200
log_every = 20
workers = false
agent.random_steps = 40
agent.batch_size = 4
agent.sizes.encoder_channels = 4
agent.sizes.features = 16
agent.sizes.latent = 16
env.image_size = 36
env.action_repeat = 1
evaluation.every = 100
evaluation.episodes = 2
evaluation.environments = 1
keep.tensorboard = false
keep.checkpoint_minutes = 0.008
"""


def write_grid(folder: Path, *, names=("one", "two"), seeds=(1, 2), options=TINY) -> Path:
    cells = "".join(
        f'[[cells]]\ntasks = "{TASK}"\npresets = "small"\nname = "{name}"\n[cells.options]\n{options}\n'
        for name in names
    )
    path = folder / "grid.toml"
    path.write_text(f'seeds = {list(seeds)}\nout = "{folder / "runs"}"\n{cells}')
    return path


def unit(folder: Path, name="u", seeds=(0,), agent_steps=100) -> Unit:
    return Unit("gym:CartPole-v1", "small", name, tuple(seeds), folder / "task" / name, {}, agent_steps)


_SCRIPT = textwrap.dedent("""
    import json, os, signal, sys, time
    from pathlib import Path
    folder, audit, mode, steps = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    run = folder / "seed-0"
    stop = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))
    def checkpoint(step):
        name = f"{step:06d}-step-{step}"
        place = run / "checkpoints" / name
        place.mkdir(parents=True, exist_ok=True)
        done = {"agent_steps": step, "finished": step >= steps}
        (place / "manifest.json").write_text(json.dumps(done))
        (run / "checkpoints" / "newest.json").write_text(json.dumps({"name": name}))
    newest = run / "checkpoints" / "newest.json"
    step = int(json.loads(newest.read_text())["name"][:6]) if newest.exists() else 0
    def note(text):
        with audit.open("a") as file:
            file.write(f"{os.getpid()} {text}\\n")
    note("begins")
    if mode.isdigit():
        sys.exit(int(mode))
    if mode == "hangs" and step == 0:
        checkpoint(10)
        while not stop:
            time.sleep(0.02)
        sys.exit(143)
    while step < steps and not stop:
        time.sleep(0.01)
        step += 1
        note(step)
        if step % 20 == 0:
            checkpoint(step)
            if mode == "crashes once" and step == 40:
                os.kill(os.getpid(), signal.SIGKILL)
    checkpoint(step)
    note("saved")
    sys.exit(143 if stop else 0)
""")


@dataclass(frozen=True)
class FakeLaunch(Launch):
    """Starts the stand-in."""

    mode: str = "works"

    @property
    def audit(self) -> Path:
        return self.sweep.path / "audit"

    def command(self, unit):
        words = [unit.folder, self.audit, self.mode, unit.agent_steps]
        return [sys.executable, "-c", _SCRIPT, *map(str, words)]


def steps_made(launch: FakeLaunch) -> list[int]:
    return [
        int(line.split()[1]) for line in launch.audit.read_text().splitlines() if line.split()[1].isdigit()
    ]


def wait_for(condition, process=None, seconds=60.0):
    """Until it is true; fails where that takes too long, or a process it waits for has ended."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.02)
