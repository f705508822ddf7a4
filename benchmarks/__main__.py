"""`python -m benchmarks`, from the root of a checkout."""

from __future__ import annotations

import os

# Before torch is imported: its profiler writes to the terminal.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

from benchmarks.commands import COMMANDS, Benchmark
from benchmarks.harness import Report, command_line
from ogspr.cli import run_program, run_subcommand
from ogspr.records.display import make_console

PROGRAM = "python -m benchmarks"
_DESCRIPTION = "Speed as ratios within one run, the effect of rounding, and scores of the random policy."


def run(arguments: list[str]) -> int:
    command = command_line(PROGRAM, arguments)  # first: what is measured may set environment variables
    benchmark: Benchmark = run_subcommand(PROGRAM, _DESCRIPTION, COMMANDS, arguments)
    report = Report(make_console(), benchmark.out, command)
    benchmark.run(report)
    report.close()
    return 0


def main() -> None:
    run_program(PROGRAM, run)


if __name__ == "__main__":
    main()
