"""The published settings, which depend on the task.

Source: the configuration files of the authors' repository, facebookresearch/drqv2 (MIT), folder cfgs/task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ogspr.agents.drqv2.config import DrQv2Config, Sizes

_NAME = "drqv2"

# The classes differ in how long the noise takes to fall.
EASY: dict[str, Any] = {"noise_steps": 100_000}
MEDIUM: dict[str, Any] = {"noise_steps": 500_000}
HARD: dict[str, Any] = {"noise_steps": 2_000_000}

DIFFICULTY: dict[str, dict[str, Any]] = {
    "acrobot-swingup": MEDIUM,
    "ball_in_cup-catch": EASY,
    "cartpole-balance": EASY,
    "cartpole-balance_sparse": EASY,
    "cartpole-swingup": EASY,
    "cartpole-swingup_sparse": MEDIUM,
    "cheetah-run": MEDIUM,
    "finger-spin": EASY,
    "finger-turn_easy": MEDIUM,
    "finger-turn_hard": MEDIUM,
    "hopper-hop": MEDIUM,
    "hopper-stand": EASY,
    "humanoid-run": HARD,
    "humanoid-stand": HARD,
    "humanoid-walk": HARD,
    "pendulum-swingup": EASY,
    "quadruped-run": MEDIUM,
    "quadruped-walk": MEDIUM,
    "reacher-easy": MEDIUM,
    "reacher-hard": MEDIUM,
    "walker-run": MEDIUM,
    "walker-stand": EASY,
    "walker-walk": EASY,
}
# What else is particular to a domain.
_DOMAINS: dict[str, dict[str, Any]] = {
    "humanoid": {"learning_rate": 8e-5, "sizes": Sizes(features=100)},
    "walker": {"n_step": 1, "batch_size": 512},
}
# Steps that replay keeps where it does not keep a million.
_CAPACITIES = {"dmc:quadruped-run": 100_000}


def preset_names() -> tuple[str, ...]:
    return (_NAME,)


def run_settings(task: str) -> dict[str, Any]:
    """What belongs to a run and not to the agent."""
    return {"replay": {"capacity": _CAPACITIES[task]}} if task in _CAPACITIES else {}


def preset(task: str) -> DrQv2Config:
    """The settings for a task, such as `dmc:walker-walk`.

    Tasks that the authors did not train on count as medium, also dog: the noise of hard tasks would still be
    above 0.77 after the 500 000 agent steps that they are trained for here.
    """
    suite, _, name = task.partition(":")
    if suite != "dmc" or name not in DIFFICULTY:
        return DrQv2Config()
    domain, _, _ = name.partition("-")
    return replace(DrQv2Config(), **DIFFICULTY[name], **_DOMAINS.get(domain, {}))
