"""Run folders with numbers that a test has thought of."""

import csv
import json

OPTIONS = {
    "agent": {"batch_size": 256, "random_steps": 0, "sizes": {"latent": 512}},
    "env": {"image_size": 84},
    "evaluation": {"episodes": 2, "every": 5000},
    "compute": {"precision": "bf16", "device": "cuda"},
}
MANIFEST = {
    "ogspr": "0.1.0",
    "libraries": {"mujoco": "3.17.0", "dm_control": "1.0.50"},
    "environment": {
        "protocol": {"suite": "dmc", "action_repeat": 2, "camera": 0},
        "renderer": "a GPU",
    },
    "settings": {"gpu": "H200", "cores": 16, "parameters": 5_400_000, "seeds": 2},
}


def write_run(
    path,
    scores,
    *,
    task="dmc:walker-walk",
    preset="ogspr",
    seed=0,
    agent_steps=500_000,
    manifest=MANIFEST,
    **options,
):
    """`scores`: by agent steps, a number (which both episodes get) or the numbers of the two."""
    path.mkdir(parents=True)
    settings = OPTIONS | {"agent_steps": agent_steps} | options
    config = {
        "format": 1,
        "revision": 2,
        "task": task,
        "preset": preset,
        "method": "ogspr",
        "seed": seed,
        "options": settings,
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "manifest.json").write_text(json.dumps(manifest))
    rows = [
        (step, 2 * step, number, score, 500, "truncated", "")
        for step, found in scores.items()
        for number, score in enumerate(found if isinstance(found, tuple) else (found, found), start=1)
    ]
    header = ("agent_steps", "frames", "episode", "score", "episode_steps", "ended", "fault")
    write_table(path / "eval.csv", header, rows)
    return path


def write_table(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
