"""Ctrl-C, SIGTERM and a closed terminal: the first asks for a good end, one that comes later ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

_SHOW_CURSOR = b"\x1b[?25h"  # a live display hides it
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Signals within this many seconds are one request: `timeout` signals a process and then its whole group.
ONE_REQUEST = 1.0


class Stopped(BaseException):
    """The user or the system asked the process to end.

    Not an Exception: compilers catch those in many places and continue.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


class StopRequest:
    """Remembers a request to stop until the loop comes to a place where it can stop."""

    def __init__(self) -> None:
        self._listening_to: set[signal.Signals] = set()
        self._number: int | None = None
        self._heard_at = 0.0
        self._at_once = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets no other thread hear signals
            return
        # What is ignored was meant to be: `nohup` does that to SIGHUP.
        self._listening_to = {one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN}
        before = {number: signal.signal(number, self._hear) for number in self._listening_to}
        try:
            yield
        finally:
            self._listening_to = set()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, nothing is half done that matters: a request raises Stopped where it is heard."""
        self.raise_if_requested()
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def ask(self) -> None:
        """Asks for the end from inside the process, as SIGTERM does; never ends at once."""
        if self._number is None:
            self._number, self._heard_at = signal.SIGTERM, time.monotonic()

    def on_hangup(self) -> None:
        """Asks for the end as a terminal does that is closed, unless such signals are ignored.

        Never the second request, which stops immediately: it was not asked for.
        """
        if signal.SIGHUP in self._listening_to and self._number is None:
            self._hear(signal.SIGHUP, None)

    def raise_if_requested(self) -> None:
        """Raises Stopped if a stop was requested."""
        if self._number is not None:
            raise Stopped(self._number)

    @property
    def requested(self) -> bool:
        return self._number is not None

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._number is not None:
            if now - self._heard_at > ONE_REQUEST:
                _end_at_once(number)
            return
        self._number, self._heard_at = number, now
        if self._at_once:
            raise Stopped(number)


def _end_at_once(number: int) -> None:
    """Saves nothing; what was saved stays, since no file is ever half written."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
    os._exit(128 + number)
