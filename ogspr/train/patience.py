"""A limit to how long something may take that can hang."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class OutOfPatience(BaseException):
    """Something took too long.

    No Exception: compilers catch those in many places and go on.
    """


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises OutOfPatience where the work inside stands after so many seconds.

    Outside the main thread there is no limit: only that one hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OutOfPatience

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
