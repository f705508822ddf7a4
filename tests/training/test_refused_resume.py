"""A run was killed; a resume that is refused, for whatever reason, leaves every file of it as it was."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from ogspr.agents.learning import Learning
from ogspr.agents.methods import METHODS
from ogspr.envs import EnvOptions
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.training.evaluation import Evaluator
from ogspr.training.options import ComputeOptions, EvaluationOptions, KeepOptions
from ogspr.training.run import Listener
from ogspr.training.run_records import RunRecords
from ogspr.training.signals import Stopped, StopRequest
from tests.training.runs import (
    TASK,
    Recorder,
    assert_same_run,
    disk_of,
    exit_code,
    request,
    tiny_options,
    train,
)
from tests.training.test_runs import cut_off, flip_a_bit, newest, stopped_run

KILLED_AT = 110  # agent steps, of 150
AGENT = tiny_options().agent


class Killer(Listener):
    """Kills the process it is in, as `kill -9` does."""

    def round(self, runs) -> None:
        if runs[0].trainer.progress.agent_steps == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def train_and_be_killed(wanted) -> None:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            train(wanted, Killer())
        os._exit(0)
    assert exit_code(child) == -signal.SIGKILL


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory):
    """Seeds 0 and 7 in one process, with checkpoints of the steps 0 and 40 or so, and rows of later ones."""
    folder = tmp_path_factory.mktemp("killed")
    stopped_run(folder, 40, seeds=(0, 7))
    train_and_be_killed(request(folder, seeds=(0, 7)))
    return folder


@pytest.fixture
def killed(killed_runs, tmp_path):
    """A copy of the first of them."""
    return shutil.copytree(killed_runs / "seed-0", tmp_path / "seed-0")


@pytest.fixture
def both_killed(killed_runs, tmp_path):
    shutil.copytree(killed_runs, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    train(request(folder))
    return folder / "seed-0"


@contextlib.contextmanager
def within(seconds: int):
    """What would wait for ever, as a pipe has it do, fails."""

    def give_up(*_):
        pytest.fail("it waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def looks(folder: Path) -> dict[str, tuple]:
    """What each name stands for: its kind and mode, when it was changed, what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content, changed = None, None
        if stat.S_ISREG(about.st_mode):
            content, changed = hashlib.sha256(path.read_bytes()).hexdigest(), about.st_mtime_ns
        found[str(path.relative_to(folder))] = (oct(about.st_mode), changed, content)
    return found


def assert_refused(folder: Path, complaint: str, **changes) -> None:
    before = looks(folder)
    with pytest.raises(UserError, match=complaint):
        train(request(folder, **changes))
    assert looks(folder) == before


# --- the reasons there are ----------------------------------------------------------------------


@dataclass
class Scene:
    run: Path
    patch: pytest.MonkeyPatch
    during: contextlib.ExitStack


Reason = Callable[[Scene], dict]  # makes a scene; what else is asked for than the run was begun with
REASONS: dict[str, tuple[str, Reason]] = {}  # with what is complained of


def reason(name: str, complaint: str) -> Callable[[Reason], Reason]:
    def note(make: Reason) -> Reason:
        REASONS[name] = (complaint, make)
        return make

    return note


def asked(name: str, complaint: str, **changes) -> None:
    """It is refused because of what is asked for."""
    REASONS[name] = (complaint, lambda _scene: changes)


def harmed(name: str, complaint: str, harm: Callable[[Path], object]) -> None:
    """It is refused because of what has happened to the folder."""

    def make(scene: Scene) -> dict:
        harm(scene.run)
        return {}

    REASONS[name] = (complaint, make)


def set_value(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def damage_checkpoints(run: Path) -> None:
    for path in (run / "checkpoints").glob("*/state.safetensors"):
        flip_a_bit(path)


def remove_files(folder: Path) -> None:
    for path in list(folder.iterdir()):
        path.unlink()


def keep_first_checkpoint(run: Path) -> None:
    """As if it had been killed before it made a second one."""
    for path in (run / "checkpoints").glob("*-step-*"):
        if not path.name.endswith("-step-0"):
            shutil.rmtree(path)
    (run / "checkpoints" / "newest.json").unlink()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def spoil(path: Path) -> None:
    """As many bytes as before, with other words in the header."""
    path.write_bytes(path.read_bytes().replace(b"agent_steps", b"tnega_steps"))


asked("a changed setting", r"agent\.discount: 0\.9 was 0\.99", agent=replace(AGENT, discount=0.9))
asked("another method", "method: 'drqv2' was 'ogspr'", agent=METHODS["drqv2"].config())
asked("another task", "not of .*counter", task="tests.helpers.worlds:counter", allow_changes=True)
asked("fewer steps than it has made", "beyond --agent-steps 20; use a larger number", agent_steps=20)
asked(
    "a network of another size",
    "does not fit these settings",
    agent=replace(AGENT, sizes=replace(AGENT.sizes, value_hidden=24)),
    allow_changes=True,
)
asked(
    "another method, allowed",
    "does not fit these settings",
    agent=METHODS["drqv2"].config(),
    allow_changes=True,
)
asked(
    "another batch size",
    "does not fit these settings",
    agent=replace(AGENT, batch_size=8),
    allow_changes=True,
)
asked(
    "another number of evaluation environments",
    "2 evaluation environments, not 3",
    evaluation=EvaluationOptions(every=50, episodes=3, environments=3),
    allow_changes=True,
)
asked(
    "pictures of another size",
    "does not fit",
    env=EnvOptions(image_size=44),
    allow_changes=True,
)
asked(
    "actions held for longer",
    "taken with a different protocol",
    env=EnvOptions(image_size=36, action_repeat=2),
    allow_changes=True,
)
asked("a sink that is not installed", "pip install trackio", keep=KeepOptions(trackio="project"))
if not torch.cuda.is_available():
    asked("a device that is not there", "no CUDA device", compute=ComputeOptions(device="cuda", threads=1))

harmed("no config", "but no config.json", lambda run: (run / "config.json").unlink())
harmed("a damaged config", "config.json is damaged", lambda run: cut_off(run / "config.json"))
harmed("a config of another format", "has format 2", lambda run: set_value(run / "config.json", format=2))
harmed(
    "a run of version 0.1",
    "retrain, or use ogspr 0.1",
    lambda run: set_value(run / "config.json", revision=1),
)
harmed("a newer revision", "use a newer version", lambda run: set_value(run / "config.json", revision=99))
harmed(
    "an unknown method",
    "needs the method 'other', which is not installed",
    lambda run: set_value(run / "config.json", method="other"),
)
if not torch.cuda.is_available():
    harmed(
        "a replay beside a GPU that is not there",
        "pinned memory needs a CUDA device",
        lambda run: set_value(run / "config.json", place="pinned"),
    )
harmed("a damaged manifest", "manifest.json is damaged", lambda run: cut_off(run / "manifest.json"))
harmed(
    "a manifest of another kind",
    "manifest.json is damaged: resumed is 7",
    lambda run: set_value(run / "manifest.json", resumed=7),
)
harmed("damaged checkpoints", "none of 2 checkpoints", damage_checkpoints)
harmed("no checkpoints", "there is no checkpoint in", lambda run: shutil.rmtree(run / "checkpoints"))
harmed("no replay", "none of 2 checkpoints", lambda run: remove_files(run / "replay"))
harmed(
    "a checkpoint of a newer version",
    "Use a newer ogspr",
    lambda run: set_value(newest(run) / "manifest.json", format=99),
)
for table in ("train", "episodes", "eval"):
    harmed(
        f"{table}.csv too short",
        r"bytes, fewer than the \d+ of the checkpoint",
        lambda run, name=table: (run / f"{name}.csv").write_text("agent_steps\n"),
    )
harmed("no eval.csv", "has 0 bytes, fewer than", lambda run: (run / "eval.csv").unlink())
harmed(
    "no header",
    r"eval\.csv is damaged: it has no header",
    lambda run: (run / "eval.csv").write_bytes(b"\xff" * 10_000),
)
harmed("rows that are none", "csv files .* are damaged", lambda run: spoil(run / "train.csv"))
for table in ("train", "episodes", "eval", "system"):
    for kind, put in (("pipe", replace_by_pipe), ("folder", replace_by_folder)):
        harmed(
            f"{table}.csv a {kind}",
            rf"{table}\.csv.* is (a {kind}|no file)|Is a directory",
            lambda run, name=table, put=put: put(run / f"{name}.csv"),
        )
harmed(
    "a table with a second name",
    "hard link",
    lambda run: (run.parent / "mine").hardlink_to(run / "train.csv"),
)
harmed("a lock with a second name", "hard link", lambda run: (run.parent / "mine").hardlink_to(run / "lock"))
harmed("a lock that is a pipe", "lock is a pipe", lambda run: replace_by_pipe(run / "lock"))
harmed("a file for policies", "policies is a file", lambda run: replace_by_file(run / "policies"))


@reason("a damaged checkpoint and a changed number of environments", "does not fit these settings")
def one_damaged(scene: Scene) -> dict:
    """The damaged one is told of, and keeps its name."""
    flip_a_bit(newest(scene.run) / "state.safetensors")
    return {"agent": replace(AGENT, batch_size=8), "allow_changes": True}


@reason("another process", r"in use by process \d+; wait for it")
def another_process(scene: Scene) -> dict:
    other = RunFolder(scene.run)
    other.lock()
    scene.during.callback(other.unlock)
    return {}


@reason("too little memory", r"replay does not fit.*free memory")
def too_little_memory(scene: Scene) -> dict:
    scene.patch.setattr("ogspr.replay.storage.free_host_bytes", lambda: 2**30)
    return {}


@reason("no window to learn from", "no window of 3 steps is stored")
def no_window(scene: Scene) -> dict:
    """With its first checkpoint only, and an update due at the first step that it makes."""
    keep_first_checkpoint(scene.run)
    return {"agent": replace(AGENT, random_steps=0), "allow_changes": True}


@reason("too few random steps for a window", "no window of 3 steps is stored")
def too_few_steps(scene: Scene) -> dict:
    keep_first_checkpoint(scene.run)
    return {"agent": replace(AGENT, random_steps=2), "allow_changes": True}


def without_compiler(scene: Scene) -> dict:
    torch._dynamo.reset()
    scene.during.callback(torch._dynamo.reset)
    scene.patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(scene.run.parent.parent / "cache"))
    scene.during.enter_context(torch._inductor.config.patch({"cpp.cxx": (None, "/bin/false")}))
    return {"compute": ComputeOptions(device="cpu", threads=1, mode="compiled"), "allow_changes": True}


@reason("no compiler", r"torch cannot compile here: .*\. .*--compute\.mode eager")
def no_compiler(scene: Scene) -> dict:
    return without_compiler(scene)


@reason("no compiler, and no update yet", r"--compute\.mode eager")
def no_compiler_at_first(scene: Scene) -> dict:
    keep_first_checkpoint(scene.run)
    return without_compiler(scene)


@reason("a GPU without memory", "too little free memory")
def no_gpu_memory(scene: Scene) -> dict:
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    scene.patch.setattr(Learning, "_sample", fail)
    return {}


@reason("a disk that takes no checkpoints", "cannot write .*checkpoints: Read-only")
def no_checkpoints(scene: Scene) -> dict:
    def read_only(**_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    scene.patch.setattr("ogspr.records.checkpoints.TemporaryFile", read_only)
    return {}


@reason("another version of a library", "restore it with the same task, settings and library versions")
def another_library(scene: Scene) -> dict:
    scene.patch.setattr("ogspr.envs.gym.version", lambda _package: "99.0")
    return {}


@reason("a task that cannot be built", "needs a moon")
def no_task(scene: Scene) -> dict:
    from tests.helpers import worlds

    scene.patch.setattr(worlds, "drift", worlds.refusing)
    return {}


@reason("a policy of another revision", "the checkpoint has revision")
def another_policy(scene: Scene) -> dict:
    """As in a checkpoint whose sums are right."""
    records = RunRecords.__init__

    def with_other_policies(self, folder, describe, sinks, state, listen):
        policies = {which: tree | {"revision": 99} for which, tree in state["policies"].items()}
        records(self, folder, describe, sinks, state | {"policies": policies}, listen)

    scene.patch.setattr(RunRecords, "__init__", with_other_policies)
    return {}


@pytest.mark.parametrize("name", REASONS)
def test_a_refused_resume_changes_nothing(killed, monkeypatch, name):
    complaint, make = REASONS[name]
    with contextlib.ExitStack() as during, monkeypatch.context() as patch, within(120):
        changes = make(Scene(killed, patch, during))
        before = looks(killed.parent)
        with pytest.raises(UserError, match=complaint) as refused:
            train(request(killed.parent, **changes))
        assert looks(killed.parent) == before
    assert "different settings" in str(refused.value) or len(str(refused.value).splitlines()) <= 2


def test_what_was_refused_goes_on_as_if_nothing_had_happened(killed, unbroken):
    assert_refused(killed.parent, "does not fit", agent=replace(AGENT, batch_size=8), allow_changes=True)
    train(request(killed.parent))
    assert_same_run(killed, unbroken)


def test_of_a_run_with_its_first_checkpoint_only(tmp_path):
    """Its tables would be cut back to nothing, and it would have no policies."""
    train_and_be_killed(request(tmp_path))
    names = [path.name for path in (tmp_path / "seed-0" / "checkpoints").glob("*-step-*")]
    assert len(names) == 1 and names[0].endswith("-step-0")
    assert (tmp_path / "seed-0" / "policies" / "best.safetensors").exists()
    assert (tmp_path / "seed-0" / "episodes.csv").stat().st_size
    assert_refused(tmp_path, "does not fit", agent=replace(AGENT, batch_size=8), allow_changes=True)


def test_a_damaged_checkpoint_that_cannot_be_moved_aside_harms_nothing(killed, unbroken, monkeypatch):
    flip_a_bit(newest(killed) / "state.safetensors")
    rename, listener = Path.rename, Recorder()

    def refuse(path, target):
        if Path(target).name.startswith("damaged-"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    train(request(killed.parent), listener)
    assert [text for text in listener.warnings if "cannot be moved aside: Operation not permitted" in text]
    assert_same_run(killed, unbroken)


def test_without_a_lock_file_none_is_left(killed):
    """As in a run that was copied from somewhere."""
    (killed / "lock").unlink()
    assert_refused(killed.parent, "beyond --agent-steps", agent_steps=20)


def test_the_command_line_says_it_in_a_line(killed, ogspr_here):
    before = looks(killed)
    words = ["train", TASK, "--resume", str(killed), "--agent-steps", "35"]
    done = ogspr_here(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("ogspr: error: ") and len(done.stderr.splitlines()) == 1
    assert looks(killed) == before


# --- several seeds ------------------------------------------------------------------------------

HARM_TO_ONE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a table": ("of the checkpoint", lambda run: (run / "eval.csv").write_text("")),
    "its checkpoints": ("none of 2", damage_checkpoints),
    "its manifest": ("is damaged", lambda run: cut_off(run / "manifest.json")),
    "its policies": ("is a link", lambda run: (run / "policies" / "more").symlink_to("nowhere")),
    "its config": ("is damaged", lambda run: cut_off(run / "config.json")),
}


@pytest.mark.parametrize("harmed_one", [0, 7])
@pytest.mark.parametrize("harm", HARM_TO_ONE)
def test_where_one_of_several_is_refused_none_is_changed(both_killed, harm, harmed_one):
    complaint, do = HARM_TO_ONE[harm]
    run = both_killed / f"seed-{harmed_one}"
    do(run)
    assert_refused(both_killed, complaint, seeds=(0, 7))


def test_where_one_of_several_is_in_use_none_is_changed(both_killed):
    other = RunFolder(both_killed / "seed-7")
    other.lock()
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(other.unlock)
        assert_refused(both_killed, "in use", seeds=(0, 7))


def test_runs_with_different_replays_are_refused_together(both_killed):
    config = both_killed / "seed-7" / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"capacity": content["capacity"] + 1}))
    assert_refused(both_killed, "resume each of them separately", seeds=(0, 7, 8))
    assert not (both_killed / "seed-8").exists()


# --- what ends it otherwise ---------------------------------------------------------------------


@pytest.fixture
def at_the_end_of_preparing(monkeypatch):
    """Has something happen when everything was read, and nothing written."""

    def happens(what):
        load = Evaluator.load_state_dict

        def load_and_then(evaluator, state):
            load(evaluator, state)
            what()

        monkeypatch.setattr(Evaluator, "load_state_dict", load_and_then)

    return happens


def test_a_signal_while_a_run_is_read_changes_nothing(killed, at_the_end_of_preparing):
    at_the_end_of_preparing(lambda: signal.raise_signal(signal.SIGTERM))
    before, stop = looks(killed), StopRequest()
    with stop.listening(), pytest.raises(Stopped):
        train(request(killed.parent), stop=stop)
    assert looks(killed) == before


def test_an_error_that_nobody_thought_of_changes_nothing(killed, at_the_end_of_preparing):
    def fail():
        raise MemoryError

    at_the_end_of_preparing(fail)
    before = looks(killed)
    with pytest.raises(MemoryError):
        train(request(killed.parent))
    assert looks(killed) == before


def test_killed_while_a_run_is_read_it_changes_nothing(killed, at_the_end_of_preparing):
    at_the_end_of_preparing(lambda: os.kill(os.getpid(), signal.SIGKILL))
    before = looks(killed)
    train_and_be_killed(request(killed.parent))
    assert looks(killed) == before


def test_killed_before_the_new_files_have_their_names_it_changes_none(killed, unbroken, monkeypatch):
    """What it leaves behind is removed by the next one."""
    prepare, before = RunRecords.prepare, looks(killed)

    def prepare_and_die(records, files):
        prepare(records, files)
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(RunRecords, "prepare", prepare_and_die)
        train_and_be_killed(request(killed.parent))
    after = looks(killed)
    assert {name: after[name] for name in before} == before
    assert len(after.keys() - before.keys()) == 3  # two policies and a file of events
    train(request(killed.parent))
    assert_same_run(killed, unbroken)
    assert not list(killed.rglob("*unfinished*"))


@pytest.fixture
def small_disk(tmp_path):
    with disk_of(tmp_path / "disk", "20m") as place:
        yield place


@pytest.mark.parametrize("free", [0, 4096, 65536])
def test_a_full_disk_changes_nothing(both_killed, small_disk, unbroken, free):
    runs = shutil.copytree(both_killed, small_disk / "runs")
    with contextlib.suppress(OSError), (small_disk / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(small_disk / "full", (small_disk / "full").stat().st_size - free)
    assert_refused(runs, "cannot write .*No space left on device", seeds=(0, 7))
    (small_disk / "full").unlink()
    train(request(runs, seeds=(0, 7)))
    for name in ("train.csv", "eval.csv", "policies/best.safetensors"):
        assert (runs / "seed-0" / name).read_bytes() == (unbroken / name).read_bytes()


def test_a_disk_that_cannot_be_written_changes_nothing(both_killed, small_disk):
    runs = shutil.copytree(both_killed, small_disk / "runs")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert_refused(runs, "cannot write .*lock: Read-only file system", seeds=(0, 7))
