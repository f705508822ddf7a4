"""The tasks that are known by name: the whole DeepMind Control Suite and every Atari game."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ogspr.reference import read_table
from ogspr.types import ActionSpec, ContinuousActions, DiscreteActions


@dataclass(frozen=True)
class DmcTask:
    name: str  # domain-task
    action_size: int


@dataclass(frozen=True)
class AtariGame:
    name: str
    rom: str
    minimal_actions: int  # how many of the 18 actions the game distinguishes


@cache
def dmc_tasks() -> tuple[DmcTask, ...]:
    return tuple(DmcTask(row["task"], int(row["action_size"])) for row in read_table("dmc_tasks.csv"))


@cache
def atari_games() -> tuple[AtariGame, ...]:
    return tuple(
        AtariGame(row["game"], row["rom"], int(row["minimal_actions"]))
        for row in read_table("atari_games.csv")
    )


def known_tasks() -> dict[str, ActionSpec]:
    """Every environment that is known by name, with its actions."""
    dmc: dict[str, ActionSpec] = {
        f"dmc:{task.name}": ContinuousActions(task.action_size) for task in dmc_tasks()
    }
    atari: dict[str, ActionSpec] = {
        f"atari:{game.name}": DiscreteActions(game.minimal_actions) for game in atari_games()
    }
    return dmc | atari
