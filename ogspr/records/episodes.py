"""Whole episodes as a csv file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ogspr.records.files import write_csv
from ogspr.types import Episode

_COLUMNS = ("score", "agent_steps", "frames", "ended", "fault")


def write_episodes(path: Path, episodes: Sequence[Episode]) -> None:
    """One row for each, numbered from 1."""
    rows = [
        (number, *(getattr(episode, name) for name in _COLUMNS))
        for number, episode in enumerate(episodes, start=1)
    ]
    write_csv(path, ("episode", *_COLUMNS), rows)
