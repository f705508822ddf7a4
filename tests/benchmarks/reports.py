"""Benchmarks as a test runs them: what they return, and what they print."""

from io import StringIO

from rich.console import Console

from benchmarks.harness import Report


def make_report(out=None, width=120):
    return Report(Console(file=StringIO(), width=width), out, "python -m benchmarks this")


def measured(wanted, out=None, width=120):
    report = make_report(out, width)
    return wanted.run(report), report.console.file.getvalue()
