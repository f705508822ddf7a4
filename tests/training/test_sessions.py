"""Several runs in one process, long runs, and what else listens to them."""

import errno
import io
from dataclasses import replace

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from ogspr.envs import WorkerDied
from ogspr.errors import UserError
from ogspr.records.run import RunFolder, read_json
from ogspr.records.tables import read_rows
from ogspr.training.options import EvaluationOptions, KeepOptions, ReplayOptions
from ogspr.training.saved_run import read_config
from ogspr.training.trainer import Trainer
from tests.training.runs import Recorder, final_state, request, tiny_options, train
from tests.training.test_runs import stopped_run


def events(folder):
    """Every (name, agent steps, value) in TensorBoard files, in the order they were written."""
    found = []
    for path in sorted(folder.glob("events*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = np.frombuffer(data[place : place + 8], np.uint64)
            event = event_pb2.Event.FromString(data[place + 12 : place + 12 + int(length)])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            place += 16 + int(length)
    return found


def test_tensorboard_has_what_the_tables_have(tmp_path):
    train(request(tmp_path))
    found = events(tmp_path / "seed-0" / "tensorboard")
    scores = {step: value for name, step, value in found if name == "eval/score"}
    assert sorted(scores) == [0, 50, 100, 150]
    steps = [step for name, step, _ in found if name == "train/value_loss"]
    assert steps == list(range(40, 151, 20))  # the first row has no updates yet
    assert all(np.isfinite(value) for _, _, value in found)


def test_nothing_is_written_for_tensorboard_where_it_is_not_wanted(tmp_path):
    train(request(tmp_path, agent_steps=20, keep=KeepOptions(tensorboard=False)))
    assert not (tmp_path / "seed-0" / "tensorboard").exists()


@pytest.mark.parametrize("sink", ["wandb", "trackio"])
def test_a_sink_that_is_not_installed_is_named(tmp_path, sink, monkeypatch):
    monkeypatch.setattr("ogspr.records.sinks.find_spec", lambda _name: None)
    with pytest.raises(UserError, match=f"pip install {sink}"):
        train(request(tmp_path, keep=KeepOptions(**{sink: "project"})))


class Telling:
    """Stands for a library that logs elsewhere."""

    def __init__(self) -> None:
        self.settings: dict = {}
        self.logged: list = []
        self.finished = False

    def init(self, **settings):
        self.settings = settings
        return self

    def define_metric(self, name, step_metric="agent_steps"):
        assert (name, step_metric) in (("agent_steps", "agent_steps"), ("*", "agent_steps"))

    def log(self, values):
        self.logged.append((values["agent_steps"], values))

    def finish(self):
        self.finished = True


@pytest.mark.parametrize("sink", ["wandb", "trackio"])
def test_other_sinks_are_told_the_same(tmp_path, sink, monkeypatch):
    library = Telling()
    monkeypatch.setattr("ogspr.records.sinks._optional", lambda *_: library)
    train(request(tmp_path, keep=KeepOptions(**{sink: "project"})))
    assert library.settings["project"] == "project"
    assert library.settings["config"]["options"]["agent"]["discount"] == 0.99
    assert [step for step, values in library.logged if "eval/score" in values] == [0, 50, 100, 150]
    assert library.finished


@pytest.mark.parametrize("steps", [40, 31], ids=["acting", "evaluating"])
def test_a_run_that_diverges_stops_in_good_order(tmp_path, steps):
    agent = replace(tiny_options().agent, learning_rate=1e30, clip_norm=1e38)
    evaluation = EvaluationOptions(every=steps, episodes=1, environments=1)
    listener = Recorder()
    wanted = request(tmp_path, agent=agent, agent_steps=steps, evaluation=evaluation)
    session = train(wanted, listener)
    assert len(session.failed) == 1 and "non-finite" in session.failed[0]
    assert "Its last checkpoint is intact" in listener.warnings[-1]
    assert final_state(tmp_path / "seed-0")["trainer"]["progress"]["agent_steps"] == 0


def test_a_run_that_cannot_go_on_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("ogspr.training.trainer.Trainer.begin_round", failing_for_the_first_of(2))
    session = train(request(tmp_path, seeds=(0, 1), agent_steps=60))
    assert len(session.failed) == 1 and session.failed[0].startswith("seed 0: ")
    assert final_state(tmp_path / "seed-1")["trainer"]["progress"]["agent_steps"] == 60


def failing_for_the_first_of(runs):
    """A round whose environment is lost in the first run, the tenth time."""
    begin, calls = Trainer.begin_round, [0]

    def begin_round(trainer):
        calls[0] += 1
        if calls[0] == 9 * runs + 1:
            raise WorkerDied("the worker process died for good.")
        begin(trainer)

    return begin_round


def test_the_manifest_says_how_it_was_made_and_resumed(tmp_path):
    folder = stopped_run(tmp_path, 20)
    train(request(tmp_path))
    manifest = read_json(RunFolder(folder).manifest)
    assert manifest["environment"]["protocol"]
    assert manifest["libraries"]["torch"]
    assert manifest["command"].startswith("ogspr")
    assert len(manifest["resumed"]) == 1
    assert read_config(RunFolder(folder)).options["agent"]["batch_size"] == 4


def test_memory_does_not_grow(tmp_path):
    """Within one process: over some eighty episodes, evaluations and checkpoints."""
    often = {
        "evaluation": EvaluationOptions(every=10, episodes=2, environments=2, overlap=True),
        "keep": KeepOptions(checkpoint_minutes=0.005),
        "replay": ReplayOptions(capacity=60),
        "log_every": 10,
    }
    train(request(tmp_path, agent_steps=800, **often))
    rows = read_rows(tmp_path / "seed-0" / "system.csv")
    sizes = [row["memory_bytes"] for row in rows]
    assert len(sizes) == 80
    assert max(sizes[-10:]) - max(sizes[20:30]) < 8e6, sizes


def test_a_disk_that_is_full_for_tensorboard_stops_the_run(tmp_path, monkeypatch):
    class FullDisk(io.BytesIO):
        def write(self, _data):
            raise OSError(errno.ENOSPC, "No space left on device")

    from tensorboardX.record_writer import RecordWriter

    def on_a_full_disk(self, path):
        self._writer = FullDisk()
        self.path = path

    monkeypatch.setattr(RecordWriter, "__init__", on_a_full_disk)
    with pytest.raises(UserError, match=r"cannot write .*events.*No space left"):
        train(request(tmp_path))


def test_events_of_a_resumed_run_are_not_doubled(tmp_path):
    folder = stopped_run(tmp_path, 55, 30)
    train(request(tmp_path))
    found = [(name, step) for name, step, _ in events(folder / "tensorboard")]
    assert len(found) == len(set(found))
    assert {step for name, step in found if name == "eval/score"} == {0, 50, 100, 150}
