"""Runs and reports from somebody else lead nobody to write, remove or show a file outside of them."""

import contextlib
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from ogspr.commands.declared import Export, Play, Quickstart, Report
from ogspr.commands.policy import export, play
from ogspr.commands.train import TrainCommand
from ogspr.commands.video import recording_video
from ogspr.errors import UserError
from ogspr.probe.probing import HeadTraining
from ogspr.probe.results import draw, summarise, write_rows
from ogspr.records.display import make_console
from ogspr.records.files import (
    NewFiles,
    check_file,
    check_writable,
    make_folder,
    make_inner_folder,
    open_to_change,
    read_file,
    remove,
    remove_unfinished,
    write_atomic,
    write_csv,
)
from ogspr.records.run import RunFolder, read_json
from ogspr.report.build import make_report, write_report
from ogspr.report.probing import find_losses
from ogspr.training.policy_file import load_policy
from ogspr.training.presets import preset_options
from tests.analysis.folders import write_run
from tests.probe.test_results import TASK as PROBED
from tests.probe.test_results import rows
from tests.training.runs import TASK, Listener, Recorder, request, train
from tests.training.test_refused_resume import looks, within
from tests.training.test_runs import stopped_run

PLACE = TASK.replace(":", "-")
PRECIOUS = b"nobody may change this"


@pytest.fixture
def victim(tmp_path):
    """A folder of the user's with files of all names that a run could have."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("file", "best.safetensors", "000000000000-000000000041.safetensors", "main.md"):
        (folder / name).write_bytes(PRECIOUS)
    return folder


@contextlib.contextmanager
def untouched(folder: Path):
    before = looks(folder)
    yield
    assert looks(folder) == before


@pytest.fixture
def soon():
    with within(60):
        yield


# --- files --------------------------------------------------------------------------------------

ODD = {
    "link": lambda path, victim: path.symlink_to(victim / "file"),
    "link to nothing": lambda path, victim: path.symlink_to(victim / "nothing"),
    "pipe": lambda path, _victim: os.mkfifo(path),
    "folder": lambda path, _victim: path.mkdir(),
}
WRITERS = {
    "whole": lambda path: write_atomic(path, b"new"),
    "csv": lambda path: write_csv(path, ("a",), [(1,)]),
    "in place": open_to_change,
    "checked": check_writable,
}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("odd", ODD)
def test_only_a_plain_file_is_written_or_replaced(tmp_path, victim, odd, writer):
    path = tmp_path / "place" / "file.csv"
    path.parent.mkdir()
    ODD[odd](path, victim)
    with (
        untouched(tmp_path),
        pytest.raises(
            UserError, match=rf"cannot write .*file\.csv: it is a {odd.split()[0]}; choose another"
        ),
    ):
        WRITERS[writer](path)


def test_a_device_is_no_file():
    with pytest.raises(UserError, match="/dev/null: it is a device"):
        check_file(Path("/dev/null"))


def test_a_file_with_a_second_name_is_replaced_but_not_written_in_place(tmp_path, victim):
    path = tmp_path / "file.csv"
    path.hardlink_to(victim / "file")
    with pytest.raises(UserError, match=r"a hard link\); replace it with a copy"):
        open_to_change(path)
    write_atomic(path, b"new")
    assert (path.read_bytes(), (victim / "file").read_bytes()) == (b"new", PRECIOUS)


def test_links_where_earlier_versions_wrote_before_renaming_are_no_way_out(tmp_path, victim):
    for ending in (".unfinished", ".tmp", ".unfinished-00000000"):
        (tmp_path / f"file.csv{ending}").symlink_to(victim / "file")
    with untouched(victim):
        write_atomic(tmp_path / "file.csv", b"new")
    assert (tmp_path / "file.csv").read_bytes() == b"new"


def test_a_link_to_a_folder_is_for_those_who_name_it(tmp_path, victim):
    (tmp_path / "scratch").symlink_to(victim)
    make_folder(tmp_path / "scratch" / "runs")
    write_atomic(tmp_path / "scratch" / "new.csv", b"new")
    assert (victim / "new.csv").read_bytes() == b"new"
    with pytest.raises(UserError, match="scratch: it is a link; replace it with a folder"):
        make_inner_folder(tmp_path / "scratch")


@pytest.mark.usefixtures("soon")
def test_what_would_never_end_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "zeros"):
        with pytest.raises(OSError, match="it is not a file"):
            read_file(tmp_path / name)
        with pytest.raises(UserError, match=rf"cannot read .*{name}: it is not a file\."):
            read_json(tmp_path / name)
        with pytest.raises(UserError, match=rf"cannot read .*{name}.*it is not a file"):
            load_policy(tmp_path / name)


def test_of_a_link_the_link_is_removed(tmp_path, victim):
    (tmp_path / "run").mkdir()
    for number, target in enumerate((victim, victim / "file", tmp_path / "nothing")):
        (tmp_path / "run" / f"{number}.unfinished-0123abcd").symlink_to(target)
    (tmp_path / "run" / "mine.unfinished").write_text("")
    (tmp_path / "run" / "link").symlink_to(victim)
    with untouched(victim):
        remove_unfinished(tmp_path / "run")
        remove(tmp_path / "run" / "link")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.unfinished"]


def test_new_files_get_their_names_together_or_not_at_all(tmp_path):
    (tmp_path / "first").write_text("old")
    (tmp_path / "gone").write_text("old")
    before = looks(tmp_path)

    def write(fail):
        with NewFiles() as files:
            files.begin(tmp_path / "first").write_text("new")
            files.begin(tmp_path / "second").write_text("new")
            files.instead_of(tmp_path / "gone")
            assert {name: about for name, about in looks(tmp_path).items() if name in before} == before
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fail=True)
    assert looks(tmp_path) == before
    write(fail=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"first": "new", "second": "new"}


# --- training -----------------------------------------------------------------------------------

FILES = (
    *("config.json", "manifest.json", "lock", "failed_update.json", "diverged.safetensors"),
    *("train.csv", "episodes.csv", "eval.csv", "system.csv"),
    *("policies/best.safetensors", "policies/last.safetensors"),
    *("policies/best.safetensors.unfinished", "policies/last.safetensors.unfinished"),
    *("checkpoints/newest.json", "checkpoints/newest.json.unfinished"),
    "checkpoints/000003-step-150.unfinished/state.safetensors",
    "checkpoints/000003-step-150.unfinished/state.safetensors.unfinished",
    "checkpoints/000003-step-150.unfinished/manifest.json.unfinished",
    *("config.json.unfinished", "manifest.json.unfinished", "diverged.safetensors.unfinished"),
    *(f"replay/000000000041-000000000163.safetensors{ending}" for ending in ("", ".unfinished")),
    "tensorboard/events.out.tfevents.1.ogspr",
)
FOLDERS = ("policies", "checkpoints", "replay", "tensorboard", "videos")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return stopped_run(tmp_path_factory.mktemp("stopped"), 60)


@pytest.fixture
def run(stopped, tmp_path):
    """A copy of a run, and where it was made longer nothing of it is left by accident."""
    return shutil.copytree(stopped, tmp_path / "runs" / "seed-0")


def plant(run: Path, name: str, put) -> None:
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put(path)


def assert_refused(run: Path, victim: Path, complaint: str) -> None:
    with untouched(run), untouched(victim), pytest.raises(UserError, match=complaint):
        train(request(run.parent))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("new", [False, True], ids=["resumed", "new"])
def test_a_run_does_not_write_through_a_link(tmp_path, run, victim, name, new):
    if new:
        run = tmp_path / "new" / "seed-0"
    plant(run, name, lambda path: path.symlink_to(victim / "file"))
    assert_refused(run, victim, f"{Path(name).name}(/.*)? is a link; a run's folder must contain|config.json")


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("new", [False, True], ids=["resumed", "new"])
def test_a_run_has_its_folders_itself(tmp_path, run, victim, name, new):
    if new:
        run = tmp_path / "new" / "seed-0"
    plant(run, name, lambda path: path.symlink_to(victim))
    assert_refused(run, victim, f"{name} is a link; a run's folder must contain its files itself")


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", [name for name in FILES if "unfinished" not in name])
def test_a_pipe_in_the_place_of_a_file_is_refused(run, victim, name):
    plant(run, name, os.mkfifo)
    assert_refused(run, victim, r"is a pipe|it is not a file")


@pytest.mark.parametrize("name", ["train.csv", "episodes.csv", "eval.csv", "system.csv", "lock"])
def test_what_is_written_in_place_has_no_second_name(run, victim, name):
    def put(path):
        path.hardlink_to(victim / "file")

    plant(run, name, put)
    assert_refused(run, victim, rf"{name}: it is the same file as another one \(a hard link\)")


def test_a_second_name_of_what_is_replaced_does_no_harm(run, victim):
    for name in ("config.json", "manifest.json", "policies/best.safetensors", "checkpoints/newest.json"):
        shutil.copy(run / name, victim / Path(name).name)
        (run / name).unlink()
        (run / name).hardlink_to(victim / Path(name).name)
    with untouched(victim):
        train(request(run.parent))


def test_runs_behind_a_link_are_the_users(tmp_path, run, victim):
    """As on a scratch disk: the folder of a run and those above it may be links."""
    shutil.move(run, tmp_path / "scratch" / "seed-0")
    run.symlink_to(tmp_path / "scratch" / "seed-0")
    (tmp_path / "short").symlink_to(run.parent)
    recorder = Recorder()
    with untouched(victim):
        train(request(tmp_path / "short"), recorder)
    assert any(line.startswith(f"resuming {tmp_path / 'short' / 'seed-0'} from") for line in recorder.lines)


def test_a_link_that_comes_later_is_refused_when_it_is_met(run, victim):
    """As where a folder is moved away while a run goes on."""

    class Mover(Listener):
        def round(self, runs) -> None:
            (progress,) = [one.trainer.progress for one in runs]
            if progress.agent_steps == 70:
                for name in ("policies", "replay"):
                    plant(run, name, lambda path: path.symlink_to(victim))

    with (
        untouched(victim),
        pytest.raises(UserError, match="policies: it is a link; replace it with a folder"),
    ):
        train(request(run.parent), Mover())


def test_the_lock_goes_with_the_process_that_made_it(tmp_path):
    folder, other = RunFolder(tmp_path / "a" / "run"), RunFolder(tmp_path / "a" / "run")
    folder.lock()
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}; wait for it"):
        other.lock()
    folder.unlock()
    assert not (tmp_path / "a").exists()
    other.lock()
    (tmp_path / "a" / "run" / "train.csv").write_text("")
    other.unlock()
    assert [path.name for path in (tmp_path / "a" / "run").iterdir()] == ["train.csv"]


# --- using a run --------------------------------------------------------------------------------


def console():
    return make_console(file=io.StringIO())


def play_once(path: Path, out: Path | None = None) -> Path:
    return play(Play(path=path, task=TASK, seed=0, workers=False, out=out), console())


def test_a_film_is_not_made_behind_a_link(run, victim):
    plant(run, "videos", lambda path: path.symlink_to(victim))
    for out in (None, run / "videos" / "quickstart.mp4"):
        with (
            untouched(victim),
            pytest.raises(UserError, match="videos: it is a link; replace it"),
        ):
            play_once(run, out)


def test_a_film_does_not_replace_what_a_link_leads_to(run, victim):
    plant(run, "videos/best.mp4", lambda path: path.symlink_to(victim / "file"))
    for out in (None, run / "videos" / "best.mp4"):
        with untouched(victim), pytest.raises(UserError, match=r"best\.mp4: it is a link"):
            play_once(run, out)
    (run / "videos" / "best.mp4").unlink()
    assert play_once(run) == run / "videos" / "best.mp4"


def test_a_film_goes_where_its_user_says(tmp_path, victim):
    """A link of the user's own."""
    (tmp_path / "films").symlink_to(victim)
    with recording_video(tmp_path / "films" / "a.mp4") as video:
        video.add(np.zeros((3, 84, 84), np.uint8))
    assert (victim / "a.mp4").stat().st_size


def test_a_policy_is_not_exported_through_a_link(tmp_path, run, victim):
    (tmp_path / "mine.safetensors").symlink_to(victim / "file")
    (tmp_path / "other.safetensors.unfinished").symlink_to(victim / "file")
    with untouched(victim):
        with pytest.raises(UserError, match=r"mine\.safetensors: it is a link"):
            export(Export(path=run, out=tmp_path / "mine.safetensors"), console())
        export(Export(path=run, out=tmp_path / "other.safetensors"), console())


# --- reports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tables", "figures"])
def test_a_report_does_not_write_into_a_linked_folder(tmp_path, victim, name):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    (victim / "curves-dmc.png").write_bytes(PRECIOUS)
    plant(tmp_path / "out", name, lambda path: path.symlink_to(victim))
    with untouched(victim), pytest.raises(UserError, match=f"{name}: it is a link; replace it with a folder"):
        write_report([tmp_path / "runs"], tmp_path / "out", None, console())


@pytest.mark.parametrize("name", ["report.html", "report.html.unfinished", "tables/more.csv.unfinished"])
def test_a_report_does_not_write_through_a_link(tmp_path, victim, name):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    plant(tmp_path / "out", name, lambda path: path.symlink_to(victim / "file"))
    with untouched(victim), contextlib.suppress(UserError):
        write_report([tmp_path / "runs"], tmp_path / "out", None, console())


@pytest.mark.parametrize("name", ["tables/main.csv", "figures/curves-dmc.png", "figures/curves-dmc.pdf"])
def test_a_report_replaces_a_link_with_a_file_of_its_own(tmp_path, victim, name):
    """What an earlier report has left is removed first: of a link, the link."""
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    plant(tmp_path / "out", name, lambda path: path.symlink_to(victim / "file"))
    with untouched(victim):
        write_report([tmp_path / "runs"], tmp_path / "out", None, console())
    assert not (tmp_path / "out" / name).is_symlink()


def test_a_report_may_lie_behind_a_link(tmp_path, victim):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    (tmp_path / "out").symlink_to(victim)
    write_report([tmp_path / "runs"], tmp_path / "out", None, console())
    assert (victim / "report.html").exists()


# --- places that nobody has named ---------------------------------------------------------------


def test_a_report_is_led_nowhere_by_a_link_of_its_default_name(tmp_path, victim, monkeypatch):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report").symlink_to(victim)
    with untouched(victim), pytest.raises(UserError, match="report is a link; say --out report if"):
        Report(runs=(Path("runs"),)).run(console())
    Report(runs=(Path("runs"),), out=Path("report")).run(console())
    assert (victim / "report.html").exists()


@pytest.mark.parametrize("link", ["runs", f"runs/{PLACE}", f"runs/{PLACE}/small/seed-7"])
def test_a_run_is_led_nowhere_by_links_of_its_default_place(tmp_path, victim, monkeypatch, link):
    monkeypatch.chdir(tmp_path)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(victim)
    command = TrainCommand(preset_options("small", TASK), task=TASK, preset="small", seeds=(0, 7))
    said = f"^{link} is a link; say --out runs/{PLACE}/small if you mean"
    with untouched(victim), pytest.raises(UserError, match=said):
        command.run(console())


@pytest.mark.parametrize("link", ["runs", "runs/quickstart", "runs/quickstart/seed-0"])
def test_a_quickstart_is_led_nowhere_by_links(tmp_path, victim, monkeypatch, link):
    monkeypatch.chdir(tmp_path)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(victim)
    with untouched(victim), pytest.raises(UserError, match=f"^{link} is a link; say --out runs/quickstart"):
        Quickstart().run(console())


def test_policies_alone_are_results_that_no_new_run_replaces(tmp_path):
    (tmp_path / "seed-0" / "policies").mkdir(parents=True)
    (tmp_path / "seed-0" / "policies" / "best.safetensors").write_bytes(PRECIOUS)
    with untouched(tmp_path), pytest.raises(UserError, match="holds results of a run"):
        train(request(tmp_path))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", ["config.json", "manifest.json", "eval.csv"])
def test_a_run_with_a_pipe_is_left_out_of_a_report(tmp_path, name):
    """`ogspr watch` makes its page of the same."""
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    write_run(tmp_path / "runs" / "b", {0: 1.0}, seed=1)
    plant(tmp_path / "runs" / "a", name, os.mkfifo)
    report = make_report([tmp_path / "runs"])
    assert [run.folder.name for run in report.collection.runs] == ["b"]
    ((_, complaint),) = report.collection.skipped
    assert "it is not a file" in complaint


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", ["train.csv", "system.csv"])
def test_a_pipe_among_the_numbers_of_a_run_leaves_them_out(tmp_path, name):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    plant(tmp_path / "runs" / "a", name, os.mkfifo)
    (run,) = make_report([tmp_path / "runs"]).document("title", str)["runs"]
    assert run["losses"]["names"] == run["system"]["names"] == []


@pytest.mark.usefixtures("soon")
def test_a_pipe_among_the_tables_of_losses_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / "probe.csv")
    assert find_losses([tmp_path])[0] == []


def test_a_page_shows_no_film_behind_a_link(tmp_path):
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    for seed, name in enumerate(("a", "b")):
        write_run(tmp_path / "runs" / name, {0: 1.0}, seed=seed)
    (tmp_path / "runs" / "a" / "videos").mkdir()
    (tmp_path / "runs" / "a" / "videos" / "best.mp4").symlink_to(tmp_path / "secret.mp4")
    (tmp_path / "runs" / "b" / "videos").symlink_to(tmp_path)
    document = make_report([tmp_path / "runs"]).document("title", str)
    assert [run["videos"] for run in document["runs"]] == [[], []]


def test_probing_does_not_write_through_a_link(tmp_path, victim):
    for ending in (".csv", ".png", ".pdf"):
        (tmp_path / f"probe{ending}").symlink_to(victim / "file")
    with untouched(victim):
        with pytest.raises(UserError, match=r"probe\.csv: it is a link"):
            write_rows(tmp_path / "probe.csv", rows(), HeadTraining(50, 4), episodes=2, seed=0, policy="last")
        with pytest.raises(UserError, match=r"probe\.png: it is a link"):
            draw(summarise(rows()), PROBED, tmp_path / "probe.csv")
