"""Training from Python: what it gives back, what callbacks hear, and how it ends."""

import json
import os
import signal
import threading
from itertools import pairwise

import pytest

import ogspr
from ogspr import api
from ogspr.records.settings_io import plain
from ogspr.records.tables import mean_scores
from ogspr.training.learner import Diverged, Learner
from tests.training.runs import TASK, assert_same_run, request, tiny_options, train

TINY = {name: value for name, value in plain(tiny_options()).items() if name != "agent_steps"}


class Diary(ogspr.Callback):
    """Writes everything down."""

    def __init__(self):
        self.heard = []

    def on_start(self, seeds):
        self.heard.append(("start", list(seeds)))

    def on_step(self, agent_steps):
        self.heard.append(("step", dict(agent_steps)))

    def on_log(self, seed, row):
        self.heard.append(("log", seed, int(row["agent_steps"])))

    def on_evaluation(self, evaluation):
        self.heard.append(("evaluation", evaluation.seed, evaluation.agent_steps, evaluation.score))

    def on_end(self, seeds):
        self.heard.append(("end", list(seeds)))

    def of(self, kind):
        return [rest for name, *rest in self.heard if name == kind]


class Until(ogspr.Callback):
    """Raises something after so many steps."""

    def __init__(self, agent_steps, error):
        self.agent_steps, self.error = agent_steps, error

    def on_step(self, agent_steps):
        if min(agent_steps.values()) >= self.agent_steps:
            raise self.error


def trained(folder, **more):
    return api.train(TASK, out=folder, quiet=True, **TINY | {"agent_steps": 60} | more)


def test_it_makes_the_runs_that_the_command_line_makes(tmp_path):
    runs = trained(tmp_path / "python", seeds=[0, 1])
    train(request(tmp_path / "command", seeds=(0, 1), agent_steps=60))
    for run in runs:
        assert_same_run(run.folder, tmp_path / "command" / f"seed-{run.seed}")
    assert [(run.task, run.seed, run.agent_steps) for run in runs] == [(TASK, 0, 60), (TASK, 1, 60)]
    assert runs[0].scores == mean_scores(runs[0].folder / "eval.csv")
    assert runs[0].score == runs[0].scores[60]
    assert runs[0].best_score == max(runs[0].scores.values())
    agent = runs[0].load("last")
    env = agent.make_env(seed=0, task=TASK)
    assert agent.spec.actions.checked(agent.act(env.reset().observation)) is not None


def test_the_same_call_goes_on(tmp_path):
    room = {"capacity": 100}  # else it is that of the shorter run
    trained(tmp_path / "in two", agent_steps=45, replay=room, keep={"replay": "always"})
    (run,) = trained(tmp_path / "in two", replay=room)
    (at_once,) = trained(tmp_path / "at once", replay=room)
    assert run.agent_steps == 60
    assert run.scores.keys() - at_once.scores.keys() == {45}  # where it had ended first
    assert (run.folder / "episodes.csv").read_text() == (at_once.folder / "episodes.csv").read_text()


def test_callbacks_hear_everything_in_order(tmp_path):
    diary = Diary()
    runs = trained(tmp_path, seeds=[3, 4], callbacks=[diary])
    assert diary.heard[0] == ("start", [3, 4])
    assert diary.heard[-1] == ("end", [3, 4])
    steps = [counts for (counts,) in diary.of("step")]
    assert steps[-1] == {3: 60, 4: 60}
    assert all(earlier != later and earlier[3] <= later[3] for earlier, later in pairwise(steps))
    for run in runs:
        evaluated = {step: score for seed, step, score in diary.of("evaluation") if seed == run.seed}
        assert evaluated == pytest.approx(run.scores)
        logged = [step for seed, step in diary.of("log") if seed == run.seed]
        rows = (run.folder / "train.csv").read_text().splitlines()[1:]
        assert len(logged) == len(rows)


def test_a_callback_that_listens_changes_nothing(tmp_path):
    (heard,) = trained(tmp_path / "heard", callbacks=[Diary()])
    (alone,) = trained(tmp_path / "alone")
    assert_same_run(heard.folder, alone.folder)


def test_a_callback_stops_training_and_everything_is_saved(tmp_path):
    (run,) = trained(tmp_path / "stopped", callbacks=[Until(25, ogspr.StopTraining())])
    assert run.agent_steps == 25
    (run,) = trained(tmp_path / "stopped")
    (at_once,) = trained(tmp_path / "at once")
    assert_same_run(run.folder, at_once.folder)


def test_the_end_is_heard_of_when_a_callback_stops_training(tmp_path):
    diary = Diary()
    trained(tmp_path, callbacks=[diary, Until(25, ogspr.StopTraining())])
    assert diary.of("step")[-1] == [{0: 25}]
    assert diary.heard[-1] == ("end", [0])


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_saves_everything_first(tmp_path, number, raised):
    class Signalled(ogspr.Callback):
        def on_step(self, agent_steps):
            if agent_steps[0] == 25:
                os.kill(os.getpid(), number)

    with pytest.raises(raised):
        trained(tmp_path / "stopped", callbacks=[Signalled()])
    (run,) = trained(tmp_path / "stopped")
    (at_once,) = trained(tmp_path / "at once")
    assert_same_run(run.folder, at_once.folder)


def test_a_run_that_failed_is_not_forgotten_where_a_callback_stops(tmp_path, monkeypatch):
    update = Learner.update

    def failing(self, agent_steps):
        if "seed-0" in str(self._state_folder) and self.agent.updates == 3:
            raise Diverged("training stopped: a test.")
        update(self, agent_steps)

    monkeypatch.setattr(Learner, "update", failing)
    with pytest.raises(api.RunsFailed, match="seed 0"):
        trained(tmp_path, seeds=[0, 1], callbacks=[Until(34, ogspr.StopTraining())])


def test_an_error_in_a_callback_is_raised_once_everything_is_saved(tmp_path):
    later = Diary()
    with pytest.raises(ZeroDivisionError, match="mine"):
        trained(tmp_path / "failed", callbacks=[Until(25, ZeroDivisionError("mine")), later])
    assert later.of("step")[-1] == [{0: 24}]
    (run,) = trained(tmp_path / "failed")
    (at_once,) = trained(tmp_path / "at once")
    assert_same_run(run.folder, at_once.folder)


def test_it_trains_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.extend(trained(tmp_path, agent_steps=20)))
    thread.start()
    thread.join()
    assert [run.agent_steps for run in found] == [20]


def test_a_configuration_is_as_good_as_a_dict(tmp_path):
    (run,) = trained(tmp_path, agent=tiny_options().agent, agent_steps=20)
    options = json.loads((run.folder / "config.json").read_text())["options"]
    assert options["agent"] == plain(tiny_options().agent)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"agent_step": 10}, "did you mean agent_steps"),
        ({"agent": {"discont": 0.9}}, "did you mean discount"),
        ({"preset": "ogsrp"}, "did you mean ogspr"),
        ({"task": ""}, "no task given"),
        ({"seeds": [1, 1]}, "one or more distinct integers"),
        ({"resume": "runs/x", "seeds": [1]}, "omit preset, seeds and out"),
        ({"method": "no_such_module:METHOD"}, "^method no_such_module:METHOD: there is no module"),
        ({"method": 3}, "expected an ogspr.MethodEntry, got 3"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(tmp_path, options, complaint):
    with pytest.raises(ogspr.UserError, match=complaint):
        api.train(**{"task": TASK, "out": tmp_path, "quiet": True} | options)
    assert not list(tmp_path.iterdir())


def test_errors_name_arguments_and_not_options(tmp_path):
    with pytest.raises(ogspr.UserError, match=r"^seeds needs one or more distinct integers"):
        trained(tmp_path, seeds=[1, 1])
    trained(tmp_path)
    with pytest.raises(ogspr.UserError, match="another out, or allow_changes to resume"):
        trained(tmp_path, agent=TINY["agent"] | {"discount": 0.5})
    with pytest.raises(ogspr.UserError, match="and agent_steps 20 ends before"):
        trained(tmp_path, agent_steps=20)


def test_what_is_to_be_typed_stays_as_it_is_typed():
    typed = "say so: ogspr train mine:make --resume runs/x"
    assert api._in_python(typed) == typed
    assert api._in_python("pip install --no-deps x") == "pip install --no-deps x"
    assert api._in_python("leave --compute.device out") == "leave compute.device out"
