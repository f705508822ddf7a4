"""Consoles that leave it to who prints what happens when nobody can read any more."""

from __future__ import annotations

import errno
import os
import select
from typing import IO

from rich.console import Console

# A reader that has ended; a terminal that is gone.
_LOST = (errno.EPIPE, errno.EIO, errno.ENXIO)
_STDOUT, _STDERR = 1, 2


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """Prints what it is given: no guessed colours, and lines as long as they are."""
    return _Console(file=file, stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would end the process here."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def is_loss(error: OSError) -> bool:
    """Whether nobody can read what is printed; else, as on a full disk, printing has only failed."""
    return error.errno in _LOST


def discard_lost_output() -> bool:
    """Sends what is still to be printed nowhere, where it has no reader; whether there was such a stream.

    Python would try again at its end, and complain.
    """
    lost = [number for number in (_STDOUT, _STDERR) if not _has_reader(number)]
    for number in lost:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    return bool(lost)


def _has_reader(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
