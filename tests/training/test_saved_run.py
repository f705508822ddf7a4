"""Runs opened to look at them."""

import shutil
from dataclasses import replace

import pytest

from ogspr.errors import UserError
from ogspr.training.options import KeepOptions
from ogspr.training.run import Listener
from ogspr.training.saved_run import open_run
from ogspr.training.signals import Stopped
from tests.training.runs import request, tiny_options, train
from tests.training.test_runs import StopAfter


class StopsLastEvaluation(Listener):
    """Presses Ctrl-C once all steps are made, while an evaluation goes on."""

    def __init__(self) -> None:
        self.stop = StopAfter(10**6)

    def round(self, runs) -> None:
        (run,) = runs
        if run.trainer.progress.agent_steps == run.options.agent_steps and run.trainer.evaluating:
            self.stop.rounds = 0


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """Stopped once, so that it has a checkpoint from before its last one."""
    folder = tmp_path_factory.mktemp("run")
    wanted = request(folder, keep=KeepOptions(checkpoint_minutes=100.0, checkpoints=5, replay="always"))
    with pytest.raises(Stopped):
        train(wanted, stop=StopAfter(60))
    train(wanted)
    return wanted.folders[0]


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def opened(run, *, with_replay):
    said = []
    return open_run(run, said.append, with_replay=with_replay), said


@pytest.mark.parametrize("with_replay", [False, True])
def test_a_whole_run_is_opened_at_its_newest_checkpoint(run, with_replay):
    before = contents(run)
    found, said = opened(run, with_replay=with_replay)
    assert (found.agent_steps, said) == (150, [])
    assert found.options.agent == tiny_options().agent
    assert found.config.preset == "ogspr"
    assert contents(run) == before


def test_a_run_is_finished_with_its_last_evaluation(run, tmp_path):
    """Stopped in the midst of that one, it has made all of its steps."""
    assert opened(run, with_replay=False)[0].finished
    wanted = request(tmp_path, evaluation=replace(tiny_options().evaluation, overlap=False))
    impatient = StopsLastEvaluation()
    with pytest.raises(Stopped):
        train(wanted, impatient, impatient.stop)
    found, _ = opened(wanted.folders[0], with_replay=False)
    assert (found.agent_steps, found.finished) == (150, False)
    train(wanted)
    assert opened(wanted.folders[0], with_replay=False)[0].finished


def test_a_damaged_replay_matters_to_those_who_ask_for_it(run):
    newest = max((run / "replay").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    before = contents(run)
    assert opened(run, with_replay=False)[0].agent_steps == 150
    found, said = opened(run, with_replay=True)
    assert 0 < found.agent_steps < 150
    assert len(said) == 1
    assert "bytes instead of" in said[0]
    assert contents(run) == before  # nothing is renamed: the run is somebody else's


def test_without_a_usable_checkpoint_it_is_told(run):
    for state in (run / "checkpoints").glob("*/state.safetensors"):
        state.unlink()
    for with_replay in (False, True):
        with pytest.raises(UserError, match=r"none of \d checkpoints .* choose another run"):
            opened(run, with_replay=with_replay)
