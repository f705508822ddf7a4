"""The progress of a run: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

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
    """Whether the output has no reader any more; otherwise, as on a full disk, printing has only failed."""
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


_REFRESH_SECONDS = 0.5
_PLAIN_SECONDS = 30.0
_WIDE = 140  # columns from which on there is room for losses
_SPEED_WINDOW = 40  # readings the speed is taken over
_SUM_OF_LOSSES = "combined_loss"


@dataclass(frozen=True)
class RunStatus:
    """One run as a watcher sees it."""

    label: str
    agent_steps: int
    total_steps: int
    last_score: float | None
    best_score: float | None
    numbers: dict[str, float]  # the last row of its log
    evaluating: bool
    learning: bool  # false during the first steps, which are random and fast


class Display(Protocol):
    """Shows lines that stay, and how far the runs are."""

    def line(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def show(self, statuses: Sequence[RunStatus]) -> None: ...

    def close(self) -> None: ...


def make_display(console: Console, *, quiet: bool) -> Display:
    if quiet:
        return QuietDisplay()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class FragileDisplay:
    """A display that may lose its terminal, or the program that reads it, without harm to what it shows.

    Args:
        display: Shown until printing fails.
        lost: Called when it has failed because the output has no reader any more.
    """

    def __init__(self, display: Display, lost: Callable[[], object]) -> None:
        self._display = display
        self._when_lost = lost
        self._lost = False

    def line(self, text: str) -> None:
        self._unless_lost(lambda: self._display.line(text))

    def warning(self, text: str) -> None:
        self._unless_lost(lambda: self._display.warning(text))

    def show(self, statuses: Sequence[RunStatus]) -> None:
        self._unless_lost(lambda: self._display.show(statuses))

    def close(self) -> None:
        self._unless_lost(self._display.close)

    def _unless_lost(self, show: Callable[[], None]) -> None:
        if self._lost:
            return
        try:
            show()
        except OSError as error:
            self._lost = True
            discard_lost_output()
            if is_loss(error):
                self._when_lost()
            else:
                self._complain(error)

    def _complain(self, error: OSError) -> None:
        with contextlib.suppress(OSError):
            make_console(stderr=True).print(f"warning: cannot print any more ({error}); training continues.")


class QuietDisplay:
    """Says only what went wrong."""

    def __init__(self) -> None:
        self._errors = make_console(stderr=True)

    def line(self, text: str) -> None: ...

    def warning(self, text: str) -> None:
        self._errors.print(f"warning: {text}")

    def show(self, statuses: Sequence[RunStatus]) -> None: ...

    def close(self) -> None: ...


class PlainDisplay(QuietDisplay):
    """Lines for a file or a pipe: one of progress from time to time."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._speed = Speed()
        self._shown = time.monotonic()

    def line(self, text: str) -> None:
        self._console.print(text)

    def show(self, statuses: Sequence[RunStatus]) -> None:
        self._speed.note(statuses)
        now = time.monotonic()
        if now - self._shown < _PLAIN_SECONDS:
            return
        self._shown = now
        self._console.print(summary(statuses, self._speed))


class LiveDisplay(QuietDisplay):
    """A table that is redrawn in place, below lines that stay."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._speed = Speed()
        self._shown = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def line(self, text: str) -> None:
        self._live.console.print(text)

    def warning(self, text: str) -> None:
        self._live.console.print(f"warning: {text}")

    def show(self, statuses: Sequence[RunStatus]) -> None:
        now = time.monotonic()
        if now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        self._speed.note(statuses)
        wide = self._console.width >= _WIDE
        self._live.update(status_table(statuses, self._speed, losses=wide), refresh=True)

    def close(self) -> None:
        self._live.stop()


class Speed:
    """Agent steps a second over the last readings, of all runs together."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque(maxlen=_SPEED_WINDOW)
        self._learning = False

    def note(self, statuses: Sequence[RunStatus]) -> None:
        now, learning = time.monotonic(), any(status.learning for status in statuses)
        if learning != self._learning:  # what was measured before says nothing about what follows
            self._readings.clear()
            self._learning = learning
        if not self._readings or now - self._readings[-1][0] >= _REFRESH_SECONDS:
            self._readings.append((now, sum(status.agent_steps for status in statuses)))

    def steps_a_second(self) -> float | None:
        """None until there is something to tell."""
        if len(self._readings) < 2:
            return None
        (begin, before), (end, after) = self._readings[0], self._readings[-1]
        return (after - before) / (end - begin) if after > before else None


def summary(statuses: Sequence[RunStatus], speed: Speed) -> str:
    """One line."""
    steps = ", ".join(str(status.agent_steps) for status in statuses)
    evaluating = " (evaluating)" if any(status.evaluating for status in statuses) else ""
    parts = [f"agent step {steps} of {statuses[0].total_steps}{evaluating}", speed_text(statuses, speed)]
    parts += [f"score {score_text(status.last_score)}" for status in statuses[:1] if len(statuses) == 1]
    parts += [f"{name} {value:.3g}" for name, value in shown_losses(statuses[0].numbers).items()]
    return "; ".join([*parts, f"memory {memory_text()}"])


def status_table(statuses: Sequence[RunStatus], speed: Speed, *, losses: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    for status in statuses:
        bar = ProgressBar(total=status.total_steps, completed=status.agent_steps, width=20)
        doing = " (evaluating)" if status.evaluating else ""
        steps = f"{status.agent_steps}/{status.total_steps}{doing}"
        scores = f"score {score_text(status.last_score)}, best {score_text(status.best_score)}"
        numbers = shown_losses(status.numbers) if losses else {}
        text = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        table.add_row(status.label, bar, steps, scores, text)
    table.add_row("", speed_text(statuses, speed), f"memory {memory_text()}")
    return table


def shown_losses(numbers: dict[str, float]) -> dict[str, float]:
    return {
        name.removesuffix("_loss"): value
        for name, value in numbers.items()
        if name.endswith("_loss") and name != _SUM_OF_LOSSES and not math.isnan(value)
    }


def score_text(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def speed_text(statuses: Sequence[RunStatus], speed: Speed) -> str:
    steps_a_second = speed.steps_a_second()
    if steps_a_second is None:
        return "no speed yet"
    if not any(status.learning for status in statuses):
        return f"{steps_a_second:.1f} steps/s, random so far"
    left = sum(max(0, status.total_steps - status.agent_steps) for status in statuses)
    return f"{steps_a_second:.1f} steps/s, {timedelta(seconds=round(left / steps_a_second))} left"


def memory_text() -> str:
    """Main memory in use by this process."""
    return f"{resident_bytes() / 1e9:.1f} GB"


def resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
