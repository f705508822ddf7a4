"""`ogspr probe` on tiny runs of two variants."""

import csv
import hashlib
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from ogspr.agents.methods import METHODS
from ogspr.commands.declared import Probe
from ogspr.commands.probe import Collector, _groups, probe
from ogspr.envs import EnvOptions
from ogspr.envs.pixels import PixelEnvironment
from ogspr.envs.worker import InProcess
from ogspr.errors import UserError
from ogspr.records.checkpoints import Checkpoints
from ogspr.records.display import make_console
from ogspr.records.run import RunFolder
from ogspr.training.policy_file import load_policy, save_policy
from tests.probe.worlds import LENGTH, Puck
from tests.training.runs import KEEP_REPLAY, request, tiny_options, train
from tests.training.runs import TASK as DRIFT

TASK = "tests.probe.worlds:puck"
VARIANTS = {"ogspr": {}, "ogspr-sp": {"self_prediction": None}}
# The settings of tiny runs are no preset's.
CHANGED = (
    "batch size 4, random steps 30, shift pad 2, sizes.decoder channels [8, 8, 8], "
    "sizes.decoder inputs 8, sizes.encoder channels 4, sizes.features 16, sizes.latent 16, "
    "sizes.policy hidden 16, sizes.representation 16, "
    "sizes.state action hidden 16, sizes.value hidden 16, target period 20"
)
OGSPR, WITHOUT_SELF_PREDICTION = f"OG-SPR, {CHANGED}", f"OG-SPR - SP, {CHANGED}"
NAMES = (OGSPR, WITHOUT_SELF_PREDICTION)


def trained(folder, preset="ogspr", task=TASK, seeds=(0,), env=None):
    agent = replace(tiny_options().agent, **VARIANTS[preset])
    about = {"agent": agent, "agent_steps": 50, "env": env or EnvOptions(), "keep": KEEP_REPLAY}
    wanted = request(folder, seeds=seeds, task=task, **about)
    train(replace(wanted, preset=preset))
    return list(wanted.folders)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [run for preset in VARIANTS for run in trained(folder / preset, preset, seeds=(0, 1))]


@pytest.fixture
def run(runs, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(runs[0], tmp_path / "run")
    return tmp_path / "run"


def probed(runs, console=None, **options):
    wanted = {
        "episodes": 4,
        "updates": 40,
        "batch_size": 8,
        "seed": 0,
        "workers": False,
        "device": "cpu",
        "task": TASK,
    }
    command = Probe(runs=tuple(runs), **(wanted | options))
    return probe(command, console or make_console(file=io.StringIO()))


def digests(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """Rows, csv file, and what was printed."""
    out = tmp_path_factory.mktemp("out") / "probe.csv"
    screen = io.StringIO()
    before = [digests(run) for run in runs]
    rows = probed(runs, make_console(file=screen), out=out)
    assert [digests(run) for run in runs] == before, "a run was changed"
    return rows, out, screen.getvalue()


def test_every_run_is_probed_with_the_collectors_of_its_seed(whole):
    rows, _, _ = whole
    found = {(row.method, row.seed, row.collector, row.collector_seed, row.loss) for row in rows}
    assert len(rows) == len(found) == 16
    assert found == {
        (method, seed, collector, seed, loss)
        for method in NAMES
        for seed in (0, 1)
        for collector in NAMES
        for loss in ("state", "next_state")
    }
    assert all(row.agent_steps == 50 and row.found.dimensions == 4 for row in rows)
    assert all(np.isfinite(row.found.held_out) for row in rows)


def test_csv_table_and_figure(whole):
    rows, out, text = whole
    written = list(csv.DictReader(out.open()))
    assert [float(row["value"]) for row in written] == [row.found.held_out for row in rows]
    assert {path.name for path in out.parent.iterdir()} == {"probe.csv", "probe.png", "probe.pdf"}
    assert sum(line.startswith(f"{WITHOUT_SELF_PREDICTION}  sum") for line in text.splitlines()) == 1
    assert f"episodes of {WITHOUT_SELF_PREDICTION}, seed 1: {4 * LENGTH} steps" in text


def test_same_seed_same_result(runs, whole):
    rows, _, _ = whole
    assert probed(runs) == rows
    assert probed(runs, seed=1) != rows


def test_a_run_alone_is_found_as_among_others(runs, whole):
    """All that decides a number is the run, the collector and the seed."""
    rows, _, _ = whole
    alone = probed(runs[:1], collectors=(runs[2],))
    for row in alone:
        (same,) = (
            other
            for other in rows
            if (other.run, other.collector, other.loss) == (row.run, row.collector, row.loss)
        )
        assert row.found.held_out == pytest.approx(same.found.held_out, rel=1e-4)


def test_a_policy_file_can_collect(runs, tmp_path):
    saved = load_policy(runs[0] / "policies" / "best.safetensors")
    save_policy(tmp_path / "best.safetensors", saved)
    rows = probed(runs[2:3], collectors=(tmp_path / "best.safetensors",))
    assert {(row.method, row.collector) for row in rows} == {(WITHOUT_SELF_PREDICTION, "OG-SPR")}


def test_runs_with_changed_settings_are_methods_of_their_own(runs, tmp_path):
    """Also where preset and seed are the same; folders that hold runs may be given."""
    agent = replace(tiny_options().agent, batch_size=5)
    train(request(tmp_path / "other", task=TASK, agent=agent, agent_steps=50, env=EnvOptions()))
    rows = probed([runs[0], tmp_path / "other"])
    assert {row.method for row in rows} == {OGSPR, OGSPR.replace("batch size 4", "batch size 5")}


def test_a_linked_run_is_named_and_not_followed(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "runs" / "seed-0")
    (tmp_path / "runs" / "seed-1").symlink_to(runs[1])
    screen = io.StringIO()
    rows = probed([tmp_path / "runs"], make_console(file=screen))
    assert {row.seed for row in rows} == {0}
    assert f"warning: {tmp_path / 'runs' / 'seed-1'} is a link; pass the folder" in screen.getvalue()


def test_a_probe_that_ends_early_leaves_no_empty_file(runs, tmp_path, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("ogspr.commands.probe.probe_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        probed(runs[:1], out=tmp_path / "probe.csv")
    assert not (tmp_path / "probe.csv").exists()


def test_workers_find_the_same(runs):
    assert probed(runs[:1], workers=True) == probed(runs[:1])


@pytest.mark.gpu
def test_a_gpu_finds_the_same_but_for_rounding(runs):
    here, there = (probed(runs[:1], device=device, updates=2000) for device in ("cpu", "cuda"))
    for ours, theirs in zip(here, there, strict=True):  # other batches, the same optimum
        assert theirs.found.training == pytest.approx(ours.found.training, rel=0.1)


class Of:
    """Stands for a run with a seed."""

    def __init__(self, seed):
        self.config = self
        self.seed = seed


def test_runs_without_a_collector_of_their_seed_are_probed_with_all():
    collectors = [Collector(None, "ogspr", seed) for seed in (0, 0, 1)]
    runs = [Of(0), Of(7), Of(1), Of(0), Of(8)]
    groups = [
        ([run.seed for run in members], [each.seed for each in used])
        for members, used in _groups(runs, collectors)
    ]
    assert groups == [([0, 0], [0, 0]), ([7, 8], [0, 0, 1]), ([1], [1])]


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"episodes": 1}, "at least 2 episodes, got 1"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"batch_size": 0}, "batch size must be at least 1"),
        ({"task": None}, "would run the code tests.probe.worlds:puck"),
        ({"seed": -1}, "seed must be from 0"),
        ({"policy": "worst"}, "unknown policy"),
    ],
)
def test_mistakes_are_told(runs, options, complaint):
    with pytest.raises(UserError, match=complaint):
        probed(runs[:1], **options)


def test_no_run_at_all():
    with pytest.raises(UserError, match="no runs were given"):
        probed([])


def test_an_out_that_cannot_be_written_is_told_before_the_work(runs, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "film.png").mkdir()
    (tmp_path / "link.pdf").symlink_to(tmp_path / "file")
    for out, complaint in (
        (tmp_path / "film.csv", r"cannot write .*film\.png"),
        (tmp_path / "link.csv", r"cannot write .*link\.pdf: it is a link"),
        (tmp_path / "file" / "probe.csv", "cannot write"),
        (tmp_path / "probe.txt", "must end in .csv"),
    ):
        screen = io.StringIO()
        with pytest.raises(UserError, match=complaint):
            probed(runs[:1], make_console(file=screen), out=out)
        assert not screen.getvalue()


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(UserError, match="is not a run folder and contains none"):
        probed([tmp_path])
    with pytest.raises(UserError, match="is not a folder"):
        probed([tmp_path / "nowhere"])


def test_a_damaged_config(run):
    (run / "config.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        probed([run])


def test_a_run_without_checkpoint(run):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match=r"there is no checkpoint in .*choose another run"):
        probed([run])


def test_a_damaged_checkpoint_is_left_for_the_one_before(run):
    newest = Checkpoints(RunFolder(run), 2).newest(print).path
    state = newest / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    screen = io.StringIO()
    rows = probed([run], make_console(file=screen))
    assert {row.agent_steps for row in rows} == {0}
    assert "cannot be used" in screen.getvalue()
    assert newest.exists()  # whoever looks changes nothing


def test_a_run_whose_replay_was_thrown_away(run):
    before = probed([run])
    shutil.rmtree(run / "replay")
    assert [row.found for row in probed([run])] == [row.found for row in before]


def test_a_checkpoint_of_other_networks(run):
    config = json.loads((run / "config.json").read_text())
    config["options"]["agent"]["sizes"]["representation"] = 8
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="does not fit the settings of its run"):
        probed([run])


def test_a_run_without_policy_cannot_collect(run):
    shutil.rmtree(run / "policies")
    with pytest.raises(UserError, match="has no last policy"):
        probed([run])


def test_the_same_run_twice(runs):
    with pytest.raises(UserError, match=r"are both OG-SPR, .*, seed 0"):
        probed([runs[0], runs[0]])


def test_a_method_that_has_no_representation(runs, monkeypatch):
    factories = replace(METHODS["ogspr"].factories(), representation=None)
    monkeypatch.setitem(METHODS, "ogspr", replace(METHODS["ogspr"], factories=lambda: factories))
    with pytest.raises(UserError, match=r"ogspr has no representation to probe; .*--collectors"):
        probed(runs[:1])


def test_different_tasks_are_named(runs, tmp_path):
    other = trained(tmp_path, task=DRIFT, env=EnvOptions(image_size=36))
    with pytest.raises(UserError, match=f"to the task {DRIFT}, not to {TASK}"):
        probed([runs[0], *other])
    with pytest.raises(UserError, match=f"different tasks: {DRIFT}, {TASK}"):
        probed(other, collectors=tuple(runs[:1]))


def test_other_settings_of_the_environment_are_named(tmp_path):
    one = trained(tmp_path / "a", task=DRIFT, env=EnvOptions(image_size=36))
    other = trained(tmp_path / "b", task=DRIFT, env=EnvOptions(image_size=36, frame_stack=2), seeds=(1,))
    with pytest.raises(UserError, match=r"saw its task differently.*frame_stack: 2 was None"):
        probed([*one, *other], task=DRIFT)


def test_a_world_without_a_state_has_nothing_to_predict(tmp_path):
    drift = trained(tmp_path, task=DRIFT, env=EnvOptions(image_size=36))
    with pytest.raises(UserError, match="provides no state besides its images"):
        probed(drift, task=DRIFT)


def test_a_simulator_that_fails_at_once_is_told(runs, monkeypatch):
    def brittle(_task, *, seed, **_options):
        return InProcess(PixelEnvironment(Puck(seed, faults=dict.fromkeys(range(9), 1))))

    monkeypatch.setattr("ogspr.commands.probe.launch", brittle)
    with pytest.raises(UserError, match="failed at once in 4 of 4 episodes"):
        probed(runs[:1])
