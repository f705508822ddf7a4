import io
import subprocess
import sys

import pytest
from rich.console import Console

from ogspr.records import display
from ogspr.records.display import LiveDisplay, PlainDisplay, QuietDisplay, RunStatus, Speed, make_display
from tests.helpers.trajectories import ROOT


def status(agent_steps=250, learning=True, **numbers):
    return RunStatus("seed 3", agent_steps, 1000, 12.34, 56.7, numbers, evaluating=False, learning=learning)


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=200)


def test_the_kind_of_display_follows_from_where_it_goes():
    assert type(make_display(console(False), quiet=False)) is PlainDisplay
    assert type(make_display(console(True), quiet=True)) is QuietDisplay
    live = make_display(console(True), quiet=False)
    assert type(live) is LiveDisplay
    live.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_display_that_nobody_reads_says_so_once(stream):
    """Lines go to one stream and warnings to the other; neither ends the process."""
    program = """
import sys
from ogspr.records.display import make_console
from ogspr.records.display import FragileDisplay, PlainDisplay
lost = []
display = FragileDisplay(PlainDisplay(make_console()), lambda: lost.append(1))
sys.stdin.readline()
for _ in range(3):
    display.line("something")
    display.warning("something else")
sys.exit(40 + len(lost))
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, **pipes)
    getattr(process, stream).close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(60) == 41


def test_a_terminal_shows_progress_scores_and_losses():
    screen = console(True)
    live = LiveDisplay(screen)
    live.line("something that stays")
    live.show([status(value_loss=0.123, policy_loss=float("nan"))])
    text = screen.file.getvalue()
    live.close()
    for part in (
        "something that stays",
        "seed 3",
        "250/1000",
        "score 12.3, best 56.7",
        "value 0.123",
        "memory",
    ):
        assert part in text, part
    assert "nan" not in text


def test_lines_come_from_time_to_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    paper = console(False)
    plain = PlainDisplay(paper)
    for steps in range(0, 1000, 10):
        now[0] += 1.0
        plain.show([status(steps)])
    lines = paper.file.getvalue().splitlines()
    assert len(lines) == 3
    assert "agent step 290 of 1000; 10.0 steps/s, 0:01:11 left; score 12.3" in lines[0]


def test_random_steps_say_nothing_about_the_time_that_is_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    paper = console(False)
    plain = PlainDisplay(paper)
    steps = 0
    for second in range(1, 61):
        learning = second > 30
        now[0] += 1.0
        steps += 1 if learning else 10
        plain.show([status(steps, learning)])
    first, second = paper.file.getvalue().splitlines()
    assert "agent step 300 of 1000; 10.0 steps/s, random so far; score" in first
    assert "agent step 330 of 1000; 1.0 steps/s, 0:11:10 left; score" in second


def test_speed_is_unknown_until_something_was_measured():
    speed = Speed()
    assert speed.steps_a_second() is None
    speed.note([status(5)])
    assert speed.steps_a_second() is None
