"""What all benchmarks do alike: rounds and medians, the machine in one line, tables, csv files.

No torch at the top: processes that only render import this file, too.
"""

from __future__ import annotations

import os
import platform
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ogspr.envs import gl
from ogspr.records.files import check_csv, write_atomic, write_csv
from ogspr.records.run import code_version

if TYPE_CHECKING:
    from ogspr.device import Device

Row = Mapping[str, object]  # by column
# Set by a user, they decide what is measured; a command names them.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "LP_NUM_THREADS", "MUJOCO_GL", "OMP_NUM_THREADS")


class Report:
    """Where the results of a benchmark go: to the terminal, and to a csv file with its command next to it.

    Args:
        console: The terminal.
        out: The csv file.
        command: What a user typed, if they did.
    """

    def __init__(self, console: Console, out: Path | None = None, command: str = "") -> None:
        if out is not None:
            check_csv(out)
        self.console = console
        self.out = out
        self._command = command
        self._hardware = ""

    def begin(self, hardware: str) -> None:
        """Names what everything after this is measured on."""
        self._hardware = hardware
        self.console.print(hardware)

    def save(self, rows: Iterable[Row], *, earlier_commands: bool = False) -> None:
        """Replaces the csv file. Call it after each measurement, so that none is lost with the next one.

        `earlier_commands`: some rows come from earlier calls, so their commands stay.
        """
        if self.out is None:
            return
        hardware = {"hardware": self._hardware} if self._hardware else {}
        table = [{**row, **hardware} for row in rows]
        write_csv(
            self.out, tuple(table[0]), [[_cell(value, ".6g") for value in row.values()] for row in table]
        )
        if self._command:
            path = self.out.with_suffix(".command")
            found = (
                path.read_text(encoding="utf-8").splitlines() if earlier_commands and path.exists() else []
            )
            commands = dict.fromkeys([*found, self._command])
            write_atomic(path, "".join(f"{line}\n" for line in commands).encode())

    def show(
        self, rows: Sequence[Row], headings: Mapping[str, str], title: str = "", digits: int = 2
    ) -> None:
        """Prints the columns that `headings` names, in that order."""
        table = Table(
            title=title or None, title_justify="left", box=None, header_style="bold", padding=(0, 1, 0, 0)
        )
        for name, heading in headings.items():
            text = all(isinstance(row[name], str) for row in rows)
            table.add_column(heading, justify="left" if text else "right", overflow="fold")
        for row in rows:
            table.add_row(*(_cell(row[name], f".{digits}f") for name in headings))
        self.console.print(table)

    def close(self) -> None:
        if self.out is not None:
            self.console.print(f"written to {self.out}")


def _cell(value: object, number: str) -> str:
    """`number`: how numbers that are not integers are written."""
    if value is None:
        return ""
    return format(value, number) if isinstance(value, float) else str(value)


def command_line(program: str, arguments: Sequence[str]) -> str:
    """What has to be typed for the same again."""
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in _VARIABLES if name in os.environ]
    return " ".join([*variables, program, shlex.join(arguments)])


def hardware(device: Device | None = None, *, renders: bool = False) -> str:
    """What a number is measured on, and with which code, in one line."""
    parts = [f"{os.cpu_count()} cores", platform.machine()]
    if device is not None:
        import torch

        parts = [device.gpu_name or "no GPU", *parts, f"torch {torch.__version__}"]
    if renders:
        decided = gl.decided()
        parts.append(f"rendered by {decided.renderer} ({decided.name})" if decided else "no OpenGL used")
    return ", ".join([*parts, code_version()])


def seconds(run: Callable[[], object], device: Device) -> float:
    """How long `run` takes, until the device has finished it."""
    device.synchronize()
    start = time.perf_counter()
    run()
    device.synchronize()
    return time.perf_counter() - start


def in_turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every round of each contender.

    They take turns, so that what disturbs the machine disturbs all of them. The first round warms up and is
    not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, timed in contenders.items():
            took = timed()
            if turn > 0:
                times[name].append(took)
    return times
