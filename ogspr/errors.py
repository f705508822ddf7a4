"""Errors that a user can act on, and the suggestions that go with them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable


class UserError(Exception):
    """Something the user asked for cannot be done; the message says what was wrong and what to do.

    The command line prints the message alone and exits with this code.
    """

    exit_code = 2


class InUse(UserError):
    """Another process writes there: the same command may work later."""

    exit_code = os.EX_TEMPFAIL


class CannotWrite(UserError):
    """A disk is full, or a file system fails."""

    exit_code = os.EX_IOERR


class SnapshotError(UserError):
    """A saved environment state does not fit the environment it should be restored into."""


class RunsFailed(Exception):
    """Some runs failed; the others are complete.

    Args:
        message: What happened to each.
        diverged: Whether all of them diverged: trying again cannot help.
    """

    def __init__(self, message: str, *, diverged: bool = False) -> None:
        super().__init__(message)
        self.exit_code = 3 if diverged else 1


class Diverged(UserError):
    """Learning has led to non-finite numbers, and will not recover."""


class SimulationFault(Exception):
    """The simulator lost its state (diverged physics, for example): the episode ends, the run continues."""


def unknown(
    kind: str, given: str, known: Iterable[str], hint: str = "", *, prefix: str = "", every: bool = False
) -> UserError:
    """The error for a misspelt name: one line with the closest names that exist.

    `prefix` stands before every name where a user writes it. Where none is close, few names are all listed,
    and many only if `every` says so.
    """
    advice = suggestion(given, known, prefix=prefix, every=every)
    return UserError(" ".join(part for part in (f"unknown {kind} '{prefix}{given}';", advice, hint) if part))


def suggestion(given: str, known: Iterable[str], *, prefix: str = "", every: bool = False) -> str:
    """The closest names that exist, as a question; if none is close, all of them, unless they are many."""
    candidates = sorted(set(known))
    lowered = {name.lower(): name for name in candidates}
    close = difflib.get_close_matches(given.lower(), lowered, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(prefix + lowered[name] for name in close)}?"
    if every or len(candidates) <= 12:
        return f"known: {', '.join(prefix + name for name in candidates)}."
    return "nothing similar is known."


def require_positive(**values: int | None) -> None:
    """Refuses sizes and counts below one; None means "not given" and passes."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise UserError(f"{name.replace('_', ' ')} must be at least 1, got {value}.")


def require_share(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name.replace('_', ' ')} must be from 0 to 1, got {value}.")


def require_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0.0:
            raise UserError(f"{name.replace('_', ' ')} must be at least 0, got {value}.")


def require_middle(**counts: int) -> None:
    """Refuses numbers of bins of which none is in the middle, at zero."""
    for name, count in counts.items():
        if count < 3 or count % 2 == 0:
            raise UserError(
                f"{name.replace('_', ' ')} must be odd, so that one is at zero, and at least 3, got {count}."
            )
