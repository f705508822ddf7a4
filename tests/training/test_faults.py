"""The command `ogspr train` and what can happen to it: signals, full disks, dead workers, other processes."""

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ogspr.training.signals import ONE_REQUEST, Stopped, StopRequest
from tests.helpers.trajectories import ROOT
from tests.training.runs import TABLES, TASK, disk_of, exit_code

TINY = """
agent_steps = 120
log_every = 20
[env]
image_size = 36
[agent]
batch_size = 4
random_steps = 30
target_period = 20
shift_pad = 2
[agent.sizes]
encoder_channels = 4
features = 16
latent = 16
representation = 16
state_action_hidden = 16
value_hidden = 16
policy_hidden = 16
decoder_channels = [8, 8, 8]
[evaluation]
every = 40
episodes = 3
environments = 2
overlap = true
[compute]
device = "cpu"
threads = 1
"""
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    path = tmp_path_factory.mktemp("settings") / "tiny.toml"
    path.write_text(TINY)
    return path


def arguments(settings: Path, out: Path, *more: str) -> list[str]:
    return ["train", TASK, "--config", str(settings), "--out", str(out), *more]


def command(settings: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "ogspr", *arguments(settings, out, *more)]


def start(words: list[str], **more) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | more
    return subprocess.Popen(words, cwd=ROOT, **pipes)


@pytest.fixture(scope="module", autouse=True)
def children_hear_hang_ups():
    """Also where the tests run under `nohup`: what a process ignores, its children would ignore, too."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


def finish(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, output


def wait_for(condition, process: subprocess.Popen) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.02)


def rows(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def unbroken(settings, tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken")
    code, output = finish(start(command(settings, out)))
    assert code == 0, output
    return out / "seed-0", output


def assert_same_tables(out: Path, unbroken) -> None:
    for name in TABLES:
        assert (out / "seed-0" / name).read_text() == (unbroken[0] / name).read_text(), name


def assert_a_process_continues(settings, out, unbroken) -> str:
    code, output = finish(start(command(settings, out)))
    assert code == 0, output
    assert_same_tables(out, unbroken)
    return output


@pytest.fixture
def finish_here(ogspr_here):
    """What `finish` gives for a process with these arguments, without one."""

    def run(words: list[str]) -> tuple[int, str]:
        done = ogspr_here(*words)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def assert_continues(settings, unbroken, finish_here):
    """The same command again, here: how the one before it ended matters, not where this one runs."""

    def check(out: Path) -> str:
        code, output = finish_here(arguments(settings, out))
        assert code == 0, output
        assert_same_tables(out, unbroken)
        return output

    return check


def test_what_a_run_says_without_a_terminal(unbroken):
    folder, output = unbroken
    lines = output.splitlines()
    assert lines[0].startswith("replay: ")
    assert lines[1] == f"new run {folder}"
    assert [int(number) for number in re.findall(r"evaluation at agent step (\d+): score", output)] == [
        *(0, 40, 80, 120)
    ]
    assert lines[-1].startswith(f"{folder} is done: score ")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_saves_and_says_how_to_go_on(settings, assert_continues, tmp_path, number, code):
    process = start(command(settings, tmp_path))
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 2, process)
    asked = time.monotonic()
    process.send_signal(number)
    found, output = finish(process)
    assert found == code
    assert time.monotonic() - asked < 10
    assert f"ogspr train {TASK} --resume {tmp_path / 'seed-0'}" in output
    assert "Traceback" not in output
    assert re.search("resuming .+ from agent step", assert_continues(tmp_path))


def test_a_reader_that_has_read_enough_ends_the_run_well(settings, assert_continues, tmp_path):
    """As `ogspr train ... | head -2` does."""
    process = start(command(settings, tmp_path))
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 129
    assert re.search("resuming .+ from agent step", assert_continues(tmp_path))


def test_a_terminal_that_is_closed_ends_the_run_well(settings, assert_continues, tmp_path):
    """What is printed to it from then on is an error of another kind."""
    ours, theirs = pty.openpty()
    process = start(command(settings, tmp_path), stdout=theirs, stderr=theirs)
    os.close(theirs)
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 2, process)
    os.close(ours)
    assert process.wait(WAIT_SECONDS) == 129
    assert re.search("resuming .+ from agent step", assert_continues(tmp_path))


def test_a_signal_without_a_reader_ends_as_it_would_with_one(settings, unbroken, tmp_path):
    """As Ctrl-C does that also ends the other side of `| tee`."""
    process = start(command(settings, tmp_path), stderr=subprocess.DEVNULL)
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 2, process)
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 130
    assert re.search("resuming .+ from agent step", assert_a_process_continues(settings, tmp_path, unbroken))


def test_a_full_disk_behind_the_output_does_not_stop_the_run(settings, unbroken, tmp_path):
    with Path("/dev/full").open("w") as full:
        process = start(command(settings, tmp_path), stdout=full, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0
    assert errors.count("warning: cannot print any more") == 1 and "No space left" in errors
    assert_same_tables(tmp_path, unbroken)


def test_hanging_up_is_never_the_second_request(monkeypatch):
    """A display that is lost while a run is saved must not end it at once."""
    monkeypatch.setattr("ogspr.training.signals._end_at_once", lambda _: pytest.fail("ended"))
    stop = StopRequest()
    stop.on_hangup()
    assert not stop.requested  # nobody is listening
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr("ogspr.training.signals.ONE_REQUEST", -1.0)
        stop.on_hangup()
    with pytest.raises(Stopped, match="SIGTERM"):
        stop.raise_if_requested()


def test_under_nohup_a_run_outlives_its_terminal_and_its_reader(settings, unbroken, tmp_path):
    process = start(["nohup", *command(settings, tmp_path)])
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 2, process)
    process.send_signal(signal.SIGHUP)
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 0
    assert_same_tables(tmp_path, unbroken)


def test_a_signal_while_nothing_is_there_yet(settings, assert_continues, tmp_path):
    process = start(command(settings, tmp_path))
    wait_for((tmp_path / "seed-0" / "lock").exists, process)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 143
    assert "Traceback" not in output
    assert_continues(tmp_path)


def test_two_signals_at_a_time_are_one_request(settings, assert_continues, tmp_path):
    """`timeout` signals the process and then its group."""
    process = start(command(settings, tmp_path))
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 2, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.005)  # so that they do not become one on the way
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 143
    assert "--resume" in output
    assert re.search("resuming .+ from agent step", assert_continues(tmp_path))


def test_a_signal_some_time_after_the_first_ends_at_once():
    heard, ready = os.pipe()
    child = os.fork()
    if child == 0:  # saving takes forever here
        with StopRequest().listening():
            os.write(ready, b".")
            while True:
                time.sleep(1)
    os.read(heard, 1)
    os.kill(child, signal.SIGINT)
    time.sleep(ONE_REQUEST + 0.1)
    os.kill(child, signal.SIGINT)
    assert exit_code(child) == 130


def test_killed_with_its_workers_it_goes_on(settings, unbroken, tmp_path):
    process = start(command(settings, tmp_path, "--keep.checkpoint-minutes", "0.002"))
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 3, process)
    process.kill()
    process.communicate()
    assert_a_process_continues(settings, tmp_path, unbroken)


def workers_of(process: subprocess.Popen) -> list[int]:
    """Environment workers, in the order they were started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in sorted(children, key=int)
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("which", [0, 1], ids=["training", "evaluation"])
def test_a_dead_worker_is_replaced(settings, unbroken, tmp_path, which):
    process = start(command(settings, tmp_path))
    wait_for(lambda: rows(tmp_path / "seed-0" / "train.csv") > 1, process)
    os.kill(workers_of(process)[which], signal.SIGKILL)
    code, output = finish(process)
    assert code == 0, output
    assert "A new one continues from the same state" in output
    assert_same_tables(tmp_path, unbroken)


def test_a_second_process_is_refused_with_the_first_ones_number(settings, tmp_path, finish_here):
    process = start(command(settings, tmp_path))
    wait_for((tmp_path / "seed-0" / "config.json").exists, process)
    code, output = finish_here(arguments(settings, tmp_path))
    assert code == 75
    assert f"is in use by process {process.pid}" in output
    assert len(output.splitlines()) == 1
    process.kill()
    process.communicate()


def small_files_only() -> None:
    """Writing beyond so many bytes fails, as it does on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))


def test_a_disk_that_fills_up_stops_the_run_and_harms_nothing(settings, assert_continues, tmp_path):
    code, output = finish(start(command(settings, tmp_path), preexec_fn=small_files_only))
    assert code == 74
    assert "cannot write" in output and "File too large" in output
    assert "Traceback" not in output
    assert not list(tmp_path.rglob("*unfinished*"))
    assert_continues(tmp_path)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of half a megabyte."""
    with disk_of(tmp_path / "disk", "500k") as place:
        yield place


def test_a_full_disk_stops_the_run_and_can_be_made_larger(settings, assert_continues, tiny_disk):
    code, output = finish(start(command(settings, tiny_disk)))
    assert code == 74
    assert "No space left on device" in output and "Traceback" not in output
    subprocess.run(["mount", "-o", "remount,size=50m", str(tiny_disk)], check=True)
    assert_continues(tiny_disk)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_whole_group_saves_too(settings, assert_continues, tmp_path, number):
    """As terminals and schedulers send it: to the workers as well."""
    process = start(command(settings, tmp_path, "--seeds", "0", "1"), start_new_session=True)
    wait_for(lambda: rows(tmp_path / "seed-1" / "train.csv") > 2, process)
    asked = time.monotonic()
    os.killpg(process.pid, number)
    code, output = finish(process)
    assert code == 128 + number
    assert time.monotonic() - asked < 10
    assert "Traceback" not in output and "died" not in output
    assert_continues(tmp_path)


def test_a_signal_to_the_whole_group_while_workers_start(settings, tmp_path):
    process = start(command(settings, tmp_path), start_new_session=True)
    wait_for((tmp_path / "seed-0" / "lock").exists, process)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    assert "Traceback" not in output


def test_the_resume_option_needs_the_name_of_code_it_runs(unbroken, finish_here):
    folder, _ = unbroken
    resume = ["--resume", str(folder)]
    code, output = finish_here(["train", *resume])
    assert code == 2
    assert f"would run the code {TASK}" in output
    code, output = finish_here(["train", TASK, *resume])
    assert code == 0, output
    assert f"{folder} is done" in output


def test_a_file_alone_does_not_make_code_run(unbroken, tmp_path, finish_here):
    config = tmp_path / "theirs.toml"
    config.write_text(f'task = "{TASK}"\n' + TINY)
    code, output = finish_here(["train", "--config", str(config)])
    assert code == 2
    assert f"would run the code {TASK}" in output
    # The config.json of a run, with the task named: another run with the same settings.
    again = arguments(unbroken[0] / "config.json", tmp_path / "again", "--agent-steps", "40")
    code, output = finish_here(again)
    assert code == 0, output
    assert "score" in output


def test_the_task_may_stand_anywhere(settings, tmp_path, finish_here):
    words = arguments(settings, tmp_path, "--quiet", "--agent-steps", "40")
    words.remove(TASK)
    assert finish_here([*words, TASK]) == (0, "")


def test_quiet_says_nothing(settings, tmp_path):
    code, output = finish(start(command(settings, tmp_path, "--quiet", "--agent-steps", "40")))
    assert (code, output) == (0, "")
