"""The tasks that are known by name: the whole DeepMind Control Suite and every Atari game."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ogspr.reference import read_table


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
