"""Documents for tests of the page: a plausible one, a hostile one, a large one, an empty one."""

import base64
import math
from collections.abc import Sequence
from random import Random
from typing import Any

from ogspr.report.document import (
    Cell,
    Document,
    FinalScore,
    RunDocument,
    Score,
    Series,
    TableDocument,
    TaskCurves,
)

TASKS = ("dmc:cartpole-swingup", "dmc:cheetah-run", "dmc:hopper-hop", "dmc:walker-walk", "atari:Breakout")
METHODS = ("ogspr", "ogspr-without-observation")
PUBLISHED = ("MR.Q", "DrQ-v2")
REPEAT = 2
LOSSES = ("value_loss", "policy_loss", "observation_loss", "self_prediction_loss", "value_gradient_norm")
INFLUENCES = tuple(f"encoder_gradient_{name}" for name in ("value", "observation", "combined"))
FILM = "data:video/mp4;base64," + base64.b64encode(b"not a film, but short").decode()


def empty() -> Document:
    return {
        "title": "Runs",
        "made": "2026-01-02T03:04:05+00:00",
        "version": "0.1.0",
        "warnings": [],
        "skipped": [],
        "tables": [],
        "scores": [],
        "curves": [],
        "runs": [],
    }


def example(
    tasks: tuple[str, ...] = TASKS,
    methods: tuple[str, ...] = METHODS,
    seeds: int = 3,
    evaluations: int = 21,
    episodes: int = 10,
    losses: tuple[str, ...] = LOSSES,
    loss_rows: int = 40,
) -> Document:
    """Runs of every method on every task; the last run of each task is unfinished."""
    random = Random(0)
    document = empty()
    document["title"] = "OG-SPR, five tasks"
    for task_index, task in enumerate(tasks):
        groups = []
        for method_index, method in enumerate(methods):
            top = 900 - 120 * method_index - 90 * (task_index % 5)
            group = [
                run(random, task, method, seed, top, evaluations, episodes, losses, loss_rows)
                for seed in range(seeds)
            ]
            groups.append(ours(method, group))
            document["runs"] += group
        _leave_unfinished(document["runs"][-1])
        published_curves = [published(random, name, 700 - 80 * at) for at, name in enumerate(PUBLISHED)]
        paper: list[FinalScore] = [
            {"method": "ogspr", "score": 850.0 - 90 * (task_index % 5), "agent_steps": 500_000},
            {"method": "MR.Q", "score": 705.0, "agent_steps": 500_000},
        ]
        document["curves"].append(
            TaskCurves(task=task, note="", series=groups + published_curves, paper=paper)
        )
        document["scores"] += [score(task, series) for series in groups]
    document["tables"] = [
        scores_table("main", "Scores at 500k agent steps", tasks),
        scores_table("ablations", "Ablations", tasks[:3]),
    ]
    document["warnings"] = ["runs/dmc-hopper-hop/ogspr/seed-2: 3 evaluations have fewer than 10 episodes"]
    document["skipped"] = [{"folder": "runs/old/seed-0", "reason": "has no config.json"}]
    return document


def score(task: str, series: Series) -> Score:
    return {
        "task": task,
        "method": series["method"],
        "runs": len(series["runs"]),
        "finished": len(series["runs"]),
        "agent_steps": series["agent_steps"][-1],
        "score": series["mean"][-1],
        "note": "3 of 5 seeds",
        "incomplete": True,
    }


def run(
    random: Random,
    task: str,
    method: str,
    seed: int,
    top: float,
    evaluations: int = 21,
    episodes: int = 10,
    losses: tuple[str, ...] = LOSSES,
    loss_rows: int = 40,
) -> RunDocument:
    every = 500_000 // max(1, evaluations - 1)
    steps = [at * every for at in range(evaluations)]
    scores = [[round(_learning(random, top, step), 2) for _ in range(episodes)] for step in steps]
    means = [sum(row) / len(row) for row in scores if row]
    folder = f"runs/{task.replace(':', '-')}/{method}/seed-{seed}"
    log = [(at + 1) * 500_000 // loss_rows for at in range(loss_rows)]
    return {
        "id": folder,
        "folder": folder,
        "task": task,
        "method": method,
        "seed": seed,
        "agent_steps": 500_000,
        "wanted_steps": 500_000,
        "finished": True,
        "last": means[-1] if means else None,
        "best": max(means) if means else None,
        "config": _config(task, method, seed),
        "manifest": {"ogspr": "0.1.0", "commit": None, "libraries": {"torch": "2.13.0", "numpy": "2.4.6"}},
        "losses": {
            "names": ["agent_steps", "frames", *losses, *INFLUENCES],
            "rows": [
                [
                    step,
                    REPEAT * step,
                    *(_loss(random, step, at) for at in range(len(losses) + len(INFLUENCES))),
                ]
                for step in log
            ],
        },
        "system": {
            "names": ["agent_steps", "unix_time", "seconds", "memory_bytes", "gpu_memory_bytes"],
            "rows": [
                [step, 1.7e9 + step / 90, step / 90 + random.random(), 2.1e9 + 900 * step, 3.4e9]
                for step in log
            ],
        },
        "evaluations": {
            "agent_steps": steps,
            "frames": [REPEAT * step for step in steps],
            "scores": [list(row) for row in scores],
        },
        "videos": [{"name": "best.mp4", "source": FILM}] if seed == 0 else [],
    }


def ours(method: str, runs: list[RunDocument]) -> Series:
    """Mean and a 95 % interval by the normal distribution: close enough for a picture."""
    evaluations = runs[0]["evaluations"]
    curves = [[_mean(row) for row in one["evaluations"]["scores"]] for one in runs]
    mean = [_mean(column) for column in zip(*curves, strict=True)]
    half = [
        1.96 * math.sqrt(sum((x - centre) ** 2 for x in column) / len(column)) / math.sqrt(len(column))
        for column, centre in zip(zip(*curves, strict=True), mean, strict=True)
    ]
    return {
        "method": method,
        "group": "ours",
        "agent_steps": evaluations["agent_steps"],
        "frames": evaluations["frames"],
        "mean": list(mean),
        "low": [centre - size for centre, size in zip(mean, half, strict=True)],
        "high": [centre + size for centre, size in zip(mean, half, strict=True)],
        "runs": [
            {"run": one["id"], "seed": one["seed"], "scores": list(curve)}
            for one, curve in zip(runs, curves, strict=True)
        ],
    }


def published(random: Random, method: str, top: float) -> Series:
    steps = list(range(0, 500_001, 20_000))
    mean: list[float | None] = [_learning(random, top, step) for step in steps]
    return {
        "method": method,
        "group": "published",
        "agent_steps": steps,
        "frames": [REPEAT * step for step in steps],
        "mean": mean,
        "low": [None] * len(steps),
        "high": [None] * len(steps),
        "runs": [],
    }


def scores_table(name: str, title: str, tasks: tuple[str, ...]) -> TableDocument:
    """Column "ogspr" of ours: 100, 300, 200 and so on, the second incomplete, the last unknown."""
    random = Random(name)
    ours_values = [100.0, 300.0, 200.0, 250.0, 150.0]
    rows: list[list[Cell]] = []
    for at, task in enumerate(tasks):
        score = None if at == len(tasks) - 1 else ours_values[at % 5]
        rows.append(
            [
                cell(task),
                cell(
                    "n/a" if score is None else f"{score:.1f}",
                    score,
                    "2 of 5 seeds" if at == 1 else "",
                    at == 1,
                ),
                number(random, "5 seeds"),
                number(random),
                number(random),
            ]
        )
    return {
        "name": name,
        "title": title,
        "note": "Means over seeds; the paper's numbers as printed.",
        "columns": [
            {"title": "Task", "group": "", "numeric": False},
            {"title": "ogspr", "group": "ours", "numeric": True},
            {"title": "ogspr-without-observation", "group": "ours", "numeric": True},
            {"title": "OG-SPR", "group": "paper", "numeric": True},
            {"title": "MR.Q", "group": "paper", "numeric": True},
        ],
        "rows": rows,
    }


def cell(text: str, value: float | None = None, note: str = "", incomplete: bool = False) -> Cell:
    return {"text": text, "value": value, "note": note, "incomplete": incomplete}


def number(random: Random, note: str = "") -> Cell:
    value = round(random.uniform(50, 950), 1)
    return cell(f"{value:.1f}", value, note)


def cut_short(document: Document, evaluations: int) -> Document:
    """With curves of ours that have only their first evaluations; what others published stays as long."""
    for series in (series for curves in document["curves"] for series in curves["series"]):
        if series["group"] == "ours":
            for name in ("agent_steps", "frames", "mean", "low", "high"):
                del series[name][evaluations:]  # type: ignore[misc]
            for run in series["runs"]:
                del run["scores"][evaluations:]
    return document


def single() -> Document:
    """One of everything that the page counts."""
    return example(
        tasks=TASKS[:1], methods=METHODS[:1], seeds=1, evaluations=1, episodes=1, losses=LOSSES[:1]
    )


def large() -> Document:
    """500 runs, 100 evaluations of 10 episodes, 60 rows of 20 columns each."""
    return example(
        tasks=tuple(f"dmc:task-{number:02d}" for number in range(25)),
        methods=("ogspr", "variant-a", "variant-b", "variant-c"),
        seeds=5,
        evaluations=100,
        losses=tuple(f"loss_{number:02d}" for number in range(18)),
        loss_rows=60,
    )


def hostile(text: str) -> Document:
    """Every string that a folder, a csv header or a configuration can bring is `text` and more."""
    document = example(tasks=TASKS[:1], methods=METHODS[:1], seeds=2, losses=(f"loss {text}",), loss_rows=3)
    changed: Document = _with_text(document, text)
    return changed


def _with_text(value: Any, text: str, key: str = "") -> Any:
    # These words are part of the contract, never of a run.
    if isinstance(value, str):
        return value if key in ("group", "source") or text in value or _is_clock(value) else f"{value} {text}"
    if isinstance(value, dict):
        inner = {name: _with_text(content, text, name) for name, content in value.items()}
        if key in ("config", "manifest"):
            inner[f"key {text}"] = text
        return inner
    return [_with_text(item, text, key) for item in value] if isinstance(value, list) else value


def _is_clock(name: str) -> bool:
    return name in ("agent_steps", "frames", "seconds", "unix_time") or name.endswith("_bytes")


def _leave_unfinished(one: RunDocument) -> None:
    one["finished"] = False
    one["agent_steps"] = 310_000


def _config(task: str, method: str, seed: int) -> dict[str, Any]:
    agent = {"batch_size": 256, "discount": 0.99, "self_prediction": {"weight": 5.0, "horizon": 5}}
    return {
        "task": task,
        "method": method,
        "seed": seed,
        "options": {"agent": agent, "env": {"camera": None, "pixel_range": [-0.5, 0.5]}, "workers": True},
    }


def _learning(random: Random, top: float, step: int) -> float:
    return max(0.0, top * (1 - math.exp(-step / 140_000)) + random.gauss(0, 0.05 * top))


def _loss(random: Random, step: int, at: int) -> float:
    return float(10.0 ** (at % 4 - 2) * (0.1 + math.exp(-step / 60_000)) * random.uniform(0.9, 1.1))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known)
