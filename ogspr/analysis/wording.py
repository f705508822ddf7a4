"""Numbers in sentences."""

from __future__ import annotations


def plural(count: int, word: str) -> str:
    """A number of things: `1 run`, `2 runs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def thousands(number: int) -> str:
    """In groups of three: `500 000`."""
    return f"{number:,}".replace(",", " ")
