"""What folders say about a sweep: done, running, waiting, failed; what is retried, and when that ends."""

import json
import os
import platform
import time

import pytest

from ogspr.records.checkpoints import progress_of
from ogspr.sweep.state import MOST_FAILURES, SweepFolder, last_line, note_attempt, verdict_of
from tests.sweep.grids import unit


@pytest.fixture
def sweep(tmp_path):
    found = SweepFolder(tmp_path)
    found.begin([])
    return found


def checkpoint(run, agent_steps, *, finished=False):
    name = f"{agent_steps:06d}-step-{agent_steps}"
    folder = run / "checkpoints" / name
    folder.mkdir(parents=True)
    content = {"agent_steps": agent_steps, "finished": finished}
    (folder / "manifest.json").write_text(json.dumps(content))
    (run / "checkpoints" / "newest.json").write_text(json.dumps({"name": name}))


def attempt(sweep, wanted, verdict=None, *, steps=0, code=1, node=None, pid=None):
    path = sweep.attempts(wanted)
    about = {"time": time.time(), "node": node or platform.node(), "pid": pid or os.getpid()}
    note_attempt(path, {"event": "begin", "steps": steps, **about})
    if verdict is not None:
        note_attempt(path, {"event": "end", "verdict": verdict, "code": code, **about})


def condition(sweep, wanted):
    return sweep.read(wanted).condition(time.time())


def test_nothing_begun_is_waiting(sweep, tmp_path):
    state = sweep.read(unit(tmp_path))
    assert (state.condition(time.time()), state.share, state.ready_at()) == ("waiting", 0.0, 0.0)


def test_a_unit_is_done_when_all_its_seeds_are(sweep, tmp_path):
    wanted = unit(tmp_path, seeds=(1, 2))
    checkpoint(wanted.folder / "seed-1", 100, finished=True)
    checkpoint(wanted.folder / "seed-2", 50)
    assert (condition(sweep, wanted), sweep.read(wanted).share) == ("waiting", 0.75)
    checkpoint(wanted.folder / "seed-2", 100)  # its last evaluation is missing
    assert condition(sweep, wanted) == "waiting"


def test_a_finished_run_that_shall_be_longer_is_not_done(sweep, tmp_path):
    wanted = unit(tmp_path)
    checkpoint(wanted.folder / "seed-0", 100, finished=True)
    assert condition(sweep, wanted) == "done"
    assert condition(sweep, unit(tmp_path, agent_steps=200)) == "waiting"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "../../etc"}', '{"name": 3}', "\0"])
def test_a_damaged_note_is_no_progress_and_no_error(tmp_path, content):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "newest.json").write_text(content)
    assert progress_of(tmp_path).agent_steps == 0


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, "done"),
        (1, "crashed"),
        (2, "mistake"),
        (3, "diverged"),
        (74, "disk"),
        (75, "in use"),
        (130, "stopped"),
        (137, "crashed"),
        (143, "stopped"),
    ],
)
def test_exit_codes_have_a_meaning(code, verdict):
    assert verdict_of(code) == verdict


@pytest.mark.parametrize("verdict", ["mistake", "diverged"])
def test_what_cannot_be_helped_is_not_tried_again(sweep, tmp_path, verdict):
    wanted = unit(tmp_path)
    attempt(sweep, wanted, verdict)
    assert condition(sweep, wanted) == "failed"


def test_failures_without_progress_are_counted_and_end(sweep, tmp_path):
    wanted = unit(tmp_path)
    for count in range(1, MOST_FAILURES):
        attempt(sweep, wanted, "crashed", code=137)
        assert condition(sweep, wanted) == "waiting", count
    attempt(sweep, wanted, "crashed", code=137)
    assert condition(sweep, wanted) == "failed"
    assert sweep.read(wanted).reason == f"exit code 137 ({MOST_FAILURES} attempts)"


def test_a_new_checkpoint_begins_the_count_again(sweep, tmp_path):
    wanted = unit(tmp_path)
    for _ in range(MOST_FAILURES - 1):
        attempt(sweep, wanted, "crashed")
    checkpoint(wanted.folder / "seed-0", 40)
    attempt(sweep, wanted, "crashed", steps=40)
    assert len(sweep.read(wanted).failures) == 1
    assert condition(sweep, wanted) == "waiting"


@pytest.mark.parametrize("verdict", ["stopped", "in use"])
def test_a_stop_and_a_lock_are_no_failures(sweep, tmp_path, verdict):
    wanted = unit(tmp_path)
    for _ in range(MOST_FAILURES + 1):
        attempt(sweep, wanted, verdict)
    assert condition(sweep, wanted) == "waiting"


def test_the_same_command_forgives_earlier_failures(sweep, tmp_path):
    wanted = unit(tmp_path)
    attempt(sweep, wanted, "mistake")
    assert condition(sweep, wanted) == "failed"
    time.sleep(0.01)
    sweep.begin([])
    assert condition(sweep, wanted) == "waiting"


def test_pauses_grow_with_failures(sweep, tmp_path):
    wanted = unit(tmp_path)
    pauses = []
    for _ in range(4):
        attempt(sweep, wanted, "crashed")
        pauses.append(round(sweep.read(wanted).ready_at() - time.time()))
    assert pauses == [0, 10, 60, 300]


def test_who_runs_shows_a_sign_of_life(sweep, tmp_path):
    wanted = unit(tmp_path)
    attempt(sweep, wanted, node="elsewhere")
    assert condition(sweep, wanted) == "running"
    os.utime(sweep.attempts(wanted), (1, 1))
    assert condition(sweep, wanted) == "waiting"


def test_a_process_of_this_machine_that_is_gone_does_not_run(sweep, tmp_path):
    wanted = unit(tmp_path)
    attempt(sweep, wanted, pid=2**22 + 1)
    assert condition(sweep, wanted) == "waiting"


def test_an_attempt_whose_end_nobody_saw_was_lost(sweep, tmp_path):
    wanted = unit(tmp_path)
    for _ in range(MOST_FAILURES + 1):
        attempt(sweep, wanted, pid=2**22 + 1)
    assert [each.verdict for each in sweep.read(wanted).attempts] == ["lost"] * MOST_FAILURES + [None]
    assert condition(sweep, wanted) == "failed"


def test_half_a_line_of_a_machine_that_went_away_is_passed_over(sweep, tmp_path):
    wanted = unit(tmp_path)
    attempt(sweep, wanted, "crashed")
    with sweep.attempts(wanted).open("a") as file:
        file.write('{"event": "beg\n')
    attempt(sweep, wanted, "crashed")
    assert len(sweep.read(wanted).failures) == 2


def test_the_last_line_of_a_log_has_no_escape_sequences(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"first\nlast \x1b[31mline\x07\n\n")
    assert last_line(log) == "last [31mline"
    assert last_line(tmp_path / "none") == ""


def test_notes_are_not_written_through_links(sweep, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    wanted = unit(tmp_path)
    sweep.attempts(wanted).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        attempt(sweep, wanted)
    assert victim.read_text() == "mine"
