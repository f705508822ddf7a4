"""Runs that are killed, damaged, continued: the same as if nothing had happened, or a clear refusal."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from unittest.mock import Mock

import pytest

from ogspr.agents.agent import Agent
from ogspr.analysis.runs import read_run
from ogspr.envs import launch
from ogspr.errors import UserError
from ogspr.records.checkpoints import Checkpoints
from ogspr.records.run import RunFolder
from ogspr.records.tables import read_rows
from ogspr.training import opening
from ogspr.training.options import EvaluationOptions, KeepOptions, ReplayOptions
from ogspr.training.policy_file import load_policy
from ogspr.training.presets import preset_options
from ogspr.training.run import Run
from ogspr.training.saved_run import open_run, read_config
from ogspr.training.signals import Stopped, StopRequest
from tests.training.runs import (
    KEEP_REPLAY,
    TABLES,
    TASK,
    Recorder,
    assert_same,
    assert_same_run,
    exit_code,
    final_state,
    kill,
    request,
    tiny_options,
    train,
    train_in_child,
)

OFTEN = KeepOptions(checkpoint_minutes=0.002)


class StopAfter(StopRequest):
    """As if somebody had pressed Ctrl-C after so many rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    @property
    def requested(self) -> bool:
        self.rounds -= 1
        return self.rounds < 0

    def raise_if_requested(self) -> None:
        if self.rounds < 0:
            raise Stopped(15)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    train(request(folder))
    return folder / "seed-0"


def stopped_run(folder, *rounds: int, **changes):
    """A run that was stopped after each of so many rounds, and not continued since."""
    for count in rounds:
        with pytest.raises(Stopped):
            train(request(folder, **changes), stop=StopAfter(count))
    return folder / "seed-0"


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    """Runs by the rounds after which they were stopped: one of each kind is enough to copy from."""

    @cache
    def stopped(*rounds: int):
        return stopped_run(tmp_path_factory.mktemp("stopped"), *rounds)

    return stopped


@pytest.fixture
def stopped_copy(stopped_once, tmp_path):
    """What `stopped_run` leaves behind in `tmp_path`, without the time that it takes."""

    def copy(*rounds: int):
        return shutil.copytree(stopped_once(*rounds), tmp_path / "seed-0")

    return copy


def test_twenty_kills_change_nothing(tmp_path):
    steps = 2400  # more than twenty lives can make on a fast machine
    room = ReplayOptions(capacity=steps)
    chance, folder = random.Random(0), tmp_path / "killed" / "seed-0"
    for number in range(20):
        workers = number % 4 == 0  # a kill also hits those who are busy with starting processes
        child = train_in_child(
            request(tmp_path / "killed", keep=OFTEN, agent_steps=steps, workers=workers, replay=room)
        )
        time.sleep(chance.uniform(0.1, 1.2 + 2.0 * workers))
        kill(child)
        assert exit_code(child) < 0, "it was faster than its killer: make the run longer"
    reached = final_state(folder)["trainer"]["progress"]["agent_steps"]
    assert reached > 50
    # Not to the end that was planned: on a slow machine that is far away and shows nothing more.
    for name in ("killed", "unbroken"):
        train(request(tmp_path / name, agent_steps=reached + 100, replay=room))
    assert_same_run(folder, tmp_path / "unbroken" / "seed-0")


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(unbroken, tmp_path):
    folder = stopped_run(tmp_path, 1, 51, 2, 60)
    train(request(tmp_path))
    assert_same_run(folder, unbroken)


def test_a_signal_while_kernels_are_compiled_is_obeyed_at_once(unbroken, tmp_path, monkeypatch):
    def compile_for_a_minute(_agent, _replay):
        with contextlib.suppress(Exception):  # as torch does, where it can do without a part of its work
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    began, stop = time.monotonic(), StopRequest()
    with monkeypatch.context() as changed, stop.listening(), pytest.raises(Stopped):
        changed.setattr("ogspr.agents.agent.Agent.rehearse", compile_for_a_minute)
        train(request(tmp_path), stop=stop)
    assert time.monotonic() - began < 50
    folder = tmp_path / "seed-0"
    assert final_state(folder)["trainer"]["progress"]["agent_steps"] == 30
    train(request(tmp_path))
    assert_same_run(folder, unbroken)


@pytest.mark.parametrize(("limit", "told"), [(60.0, 0), (0.1, 1)])
def test_a_compilation_that_takes_long_is_told_of(unbroken, tmp_path, monkeypatch, limit, told):
    rehearse, listener = Agent.rehearse, Recorder()

    def take_a_second(agent, replay):
        time.sleep(1.0)
        rehearse(agent, replay)

    monkeypatch.setattr("ogspr.training.session.COMPILATION_SECONDS", limit)
    monkeypatch.setattr(Agent, "rehearse", take_a_second)
    train(request(tmp_path), listener)
    assert len([text for text in listener.warnings if "TORCHINDUCTOR_COMPILE_THREADS=1" in text]) == told
    assert not [text for text in listener.lines if text.startswith("compiling")]  # nothing is compiled here
    assert_same_run(tmp_path / "seed-0", unbroken)


def test_a_ring_that_has_wrapped_around_is_continued(tmp_path):
    small = {"replay": ReplayOptions(capacity=60)}
    train(request(tmp_path / "unbroken", **small))
    folder = stopped_run(tmp_path / "stopped", 50, 55, 3, **small)
    train(request(tmp_path / "stopped", **small))
    assert_same_run(folder, tmp_path / "unbroken" / "seed-0")


@pytest.mark.parametrize("variant", [{"overlap": False}, {"environments": 2, "overlap": True}])
def test_waiting_for_an_evaluation_changes_nothing(unbroken, tmp_path, variant):
    options = replace(tiny_options().evaluation, **variant)
    train(request(tmp_path, evaluation=options))
    for name in TABLES:
        assert (tmp_path / "seed-0" / name).read_text() == (unbroken / name).read_text()


def test_seeds_side_by_side_equal_each_alone(unbroken, tmp_path):
    train(request(tmp_path / "both", seeds=(0, 7)))
    train(request(tmp_path / "alone", seeds=(7,)))
    for seed, alone in ((0, unbroken), (7, tmp_path / "alone" / "seed-7")):
        ours = tmp_path / "both" / f"seed-{seed}"
        for name in TABLES:
            assert (ours / name).read_text() == (alone / name).read_text()
    rows = [(tmp_path / "both" / f"seed-{seed}" / "eval.csv").read_text() for seed in (0, 7)]
    assert rows[0] != rows[1]


def test_a_finished_run_drops_its_replay_and_cannot_be_made_longer(tmp_path):
    wanted = request(tmp_path)
    train(wanted)
    (run,) = wanted.folders
    assert list((run / "replay").iterdir()) == []
    (checkpoint,) = (run / "checkpoints").glob("*-step-*")
    assert json.loads((checkpoint / "manifest.json").read_text())["finished"]
    assert open_run(run, print).finished
    with pytest.raises(UserError, match="is complete and dropped its replay"):
        open_run(run, print, with_replay=True)
    shutil.rmtree(run / "tensorboard")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="dropped its replay, so it cannot be made longer"):
        train(request(tmp_path, agent_steps=200))
    train(wanted)  # is complete, and stays so
    shutil.rmtree(run / "tensorboard")
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    assert {path.name for path in before if before[path] != after[path]} <= {"manifest.json", "config.json"}


def test_a_run_stopped_between_its_end_and_its_last_checkpoint_is_finished_by_the_next(tmp_path, monkeypatch):
    wanted = request(tmp_path)
    with monkeypatch.context() as patched:
        save = Run.save
        patched.setattr(Run, "save", lambda run, **_: save(run))
        train(wanted)
    train(wanted)
    assert list((wanted.folders[0] / "replay").iterdir()) == []


def test_a_seed_that_had_not_begun_takes_the_replay_of_the_others(tmp_path):
    """As after kill -9 between the first and the last seed's folder."""
    train(request(tmp_path / "all", seeds=(1, 2), agent_steps=60))
    train(request(tmp_path / "some", seeds=(1,), agent_steps=60))
    train(request(tmp_path / "some", seeds=(1, 2), agent_steps=60))
    for seed in (1, 2):
        for name in TABLES:
            rows = (tmp_path / "all" / f"seed-{seed}" / name).read_bytes()
            assert (tmp_path / "some" / f"seed-{seed}" / name).read_bytes() == rows


def test_a_finished_run_can_be_made_longer(tmp_path):
    train(request(tmp_path / "longer", keep=KEEP_REPLAY))
    train(request(tmp_path / "longer", agent_steps=200))
    # The room for the whole run was decided when it began.
    capacity = read_config(RunFolder(tmp_path / "longer" / "seed-0")).capacity
    train(request(tmp_path / "at once", agent_steps=200, replay=ReplayOptions(capacity=capacity)))
    for name in TABLES:
        rows = (tmp_path / "at once" / "seed-0" / name).read_text()
        assert (tmp_path / "longer" / "seed-0" / name).read_text() == rows


LAST_IS_LONG = EvaluationOptions(every=50, episodes=3, final_episodes=9, environments=2, overlap=True)


def episodes_by_step(folder):
    return Counter(row["agent_steps"] for row in read_rows(folder / "eval.csv"))


@pytest.mark.parametrize(("agent_steps", "others"), [(150, (0, 50, 100)), (120, (0, 50, 100)), (30, (0,))])
def test_the_last_evaluation_has_its_own_number_of_episodes(tmp_path, agent_steps, others):
    train(request(tmp_path, agent_steps=agent_steps, evaluation=LAST_IS_LONG))
    assert episodes_by_step(tmp_path / "seed-0") == dict.fromkeys(others, 3) | {agent_steps: 9}


@pytest.mark.parametrize("overlap", [True, False])
def test_a_run_that_is_stopped_in_its_last_evaluation_begins_it_again(tmp_path, overlap):
    options = {"agent_steps": 60, "evaluation": replace(LAST_IS_LONG, every=1000, overlap=overlap)}
    train(request(tmp_path / "unbroken", **options))

    def played():
        occasion = final_state(folder)["trainer"]["evaluator"]["occasion"]
        return (occasion["agent_steps"], occasion["episodes"]) if occasion else None

    folder = stopped_run(tmp_path / "stopped", 60, **options)
    while played() != (60, 9):
        stopped_run(tmp_path / "stopped", 7, **options)
    stopped_run(tmp_path / "stopped", 1, 12, **options)
    assert played() == (60, 9)
    train(request(tmp_path / "stopped", **options))
    assert episodes_by_step(folder)[60] == 9
    assert_same_run(folder, tmp_path / "unbroken" / "seed-0")


def test_a_run_that_is_made_longer_has_been_evaluated_at_its_old_end(tmp_path):
    train(request(tmp_path, agent_steps=60, evaluation=LAST_IS_LONG, keep=KEEP_REPLAY))
    train(request(tmp_path, agent_steps=120, evaluation=LAST_IS_LONG))
    assert episodes_by_step(tmp_path / "seed-0") == {0: 3, 50: 3, 60: 9, 100: 3, 120: 9}
    run = read_run(tmp_path / "seed-0")
    assert run.problems == ()
    assert [len(scores) for scores in run.evaluations.scores] == [3, 3, 9, 3, 9]


def test_the_number_of_episodes_of_the_last_evaluation_stays(tmp_path, stopped_copy):
    stopped_copy(40)
    with pytest.raises(UserError, match=r"evaluation\.final_episodes: 9 was None"):
        train(request(tmp_path, evaluation=LAST_IS_LONG))
    train(request(tmp_path, evaluation=LAST_IS_LONG, allow_changes=True))
    assert episodes_by_step(tmp_path / "seed-0")[150] == 9


@pytest.mark.parametrize(("episodes", "final_episodes", "fewest"), [(3, 10, 3), (10, 3, 3), (3, None, 3)])
def test_more_environments_than_episodes_are_refused(episodes, final_episodes, fewest):
    with pytest.raises(UserError, match=f"4 evaluation environments for {fewest} episodes"):
        EvaluationOptions(episodes=episodes, final_episodes=final_episodes, environments=4)
    with pytest.raises(UserError, match="final episodes must be at least 1, got 0"):
        EvaluationOptions(final_episodes=0)


def test_a_short_run_has_its_numbers_at_the_end(tmp_path):
    train(request(tmp_path, agent_steps=40, log_every=1000))
    assert [row["agent_steps"] for row in read_rows(tmp_path / "seed-0" / "train.csv")] == [40]


def test_a_run_does_not_become_shorter_than_it_is(tmp_path, stopped_copy):
    """An evaluation where it stands would stay in its tables for good."""
    folder = stopped_copy(120)
    before = {name: (folder / name).read_bytes() for name in TABLES}
    with pytest.raises(UserError, match=r"is already at agent step \d+, beyond --agent-steps 60"):
        train(request(tmp_path, agent_steps=60))
    assert before == {name: (folder / name).read_bytes() for name in TABLES}


def test_room_in_replay_is_mentioned_only_where_it_is_short(tmp_path, stopped_copy):
    stopped_copy(40)  # of a run of 150 steps
    for agent_steps, told in ((90, 0), (140, 0), (400, 1)):
        listener = Recorder()
        train(request(tmp_path, agent_steps=agent_steps, keep=KEEP_REPLAY), listener)
        assert len(listener.warnings) == told


def test_nothing_happens_to_a_run_that_is_done(unbroken):
    before = {name: (unbroken / name).read_bytes() for name in TABLES}
    listener = Recorder()
    train(request(unbroken.parent), listener)
    assert f"{unbroken} is complete (150 agent steps)" in listener.lines
    assert before == {name: (unbroken / name).read_bytes() for name in TABLES}


# --- damage -------------------------------------------------------------------------------------


def newest(folder):
    return max((folder / "checkpoints").glob("*-step-*"))


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE = {
    "truncated": lambda folder: cut_off(newest(folder) / "state.safetensors"),
    "bit flipped": lambda folder: flip_a_bit(newest(folder) / "state.safetensors"),
    "state missing": lambda folder: (newest(folder) / "state.safetensors").unlink(),
    "manifest missing": lambda folder: (newest(folder) / "manifest.json").unlink(),
    "manifest truncated": lambda folder: cut_off(newest(folder) / "manifest.json"),
    "foreign": lambda folder: (newest(folder) / "manifest.json").write_text('{"model": "other"}'),
    "empty manifest": lambda folder: (newest(folder) / "manifest.json").write_text('{"format": 1}'),
    "folder missing": lambda folder: shutil.rmtree(newest(folder)),
    "piece of replay flipped": lambda folder: flip_a_bit(max((folder / "replay").glob("*"))),
    "piece of replay missing": lambda folder: max((folder / "replay").glob("*")).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_checkpoint_before_a_damaged_one_is_used(unbroken, tmp_path, stopped_copy, damage):
    folder = stopped_copy(70, 40)
    named = newest(folder).name
    DAMAGE[damage](folder)
    listener = Recorder()
    train(request(tmp_path), listener)
    assert any(named in line for line in listener.warnings)
    if newest_is_there := [path for path in (folder / "checkpoints").iterdir() if named in path.name]:
        assert newest_is_there[0].name == f"damaged-{named}"
    for name in TABLES:
        assert (folder / name).read_text() == (unbroken / name).read_text()


def test_without_a_usable_checkpoint_nothing_is_started(tmp_path, stopped_copy):
    folder = stopped_copy(70, 40)
    for path in (folder / "checkpoints").glob("*-step-*"):
        flip_a_bit(path / "state.safetensors")
    before = {name: (folder / name).read_bytes() for name in TABLES}
    with pytest.raises(UserError, match=r"none of 2 checkpoints in .* can be used"):
        train(request(tmp_path))
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match=r"there is no checkpoint in .*start a new run"):
        train(request(tmp_path))
    assert before == {name: (folder / name).read_bytes() for name in TABLES}


def test_a_run_without_its_config_is_not_begun_anew(tmp_path, stopped_copy):
    folder = stopped_copy(70)
    (folder / "config.json").unlink()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"holds results of a run, but no config\.json"):
        train(request(tmp_path))
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path, content in before.items():
        assert path.name == "lock" or after[path] == content


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": 1}', '{"format": 2}'])
def test_a_damaged_config_is_named(tmp_path, stopped_copy, content):
    folder = stopped_copy(20)
    (folder / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json (is damaged|has format)"):
        train(request(tmp_path))


def test_a_link_in_a_run_is_not_followed(tmp_path, stopped_copy):
    folder = stopped_copy(20)
    elsewhere = tmp_path / "precious"
    (folder / "train.csv").rename(elsewhere)
    (folder / "train.csv").symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"train\.csv is a link"):
        train(request(tmp_path))


def test_a_policy_that_is_not_part_of_the_resumed_run_is_replaced(unbroken, tmp_path, stopped_copy):
    """Its file is written at once, its evaluation counts with the next checkpoint."""
    folder = stopped_copy(20)
    for name in ("best", "last"):
        shutil.copy(unbroken / "policies" / "best.safetensors", folder / "policies" / f"{name}.safetensors")
    saved = final_state(folder)["records"]["policies"]
    with pytest.raises(Stopped):
        train(request(tmp_path), stop=StopAfter(0))
    for name in ("best", "last"):
        path = folder / "policies" / f"{name}.safetensors"
        assert path.exists() == (name in saved)
        if name in saved:
            assert load_policy(path).origin == saved[name]["origin"]


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path, stopped_copy):
    folder = stopped_copy(70)
    path = newest(folder) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99, "ogspr": "9.0"}))
    with pytest.raises(UserError, match=r"has format 99, written by ogspr 9\.0.*newer ogspr"):
        train(request(tmp_path))


@pytest.mark.parametrize("place", ["state", "replay"])
@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "a/../b.safetensors", "", 7, None])
def test_names_in_a_manifest_never_lead_out_of_the_run(stopped_copy, name, place):
    folder = stopped_copy(40)
    path = newest(folder) / "manifest.json"
    content = json.loads(path.read_text())
    (content["state"] if place == "state" else content["replay"][0])["name"] = name
    path.write_text(json.dumps(content))
    warnings: list[str] = []
    found = Checkpoints(RunFolder(folder), 2).newest(warnings.append)
    assert found.agent_steps == 0  # the one before
    assert "which is not a checkpoint file" in warnings[0]


def test_a_table_that_lost_rows_is_named(tmp_path, stopped_copy):
    folder = stopped_copy(70)
    cut_off(folder / "train.csv")
    with pytest.raises(UserError, match=r"train\.csv has \d+ bytes, fewer than the"):
        train(request(tmp_path))


# --- settings -----------------------------------------------------------------------------------


@pytest.fixture
def launching(monkeypatch):
    """Counts environments: they take long to start, ten for evaluation and as many for every further seed."""
    counted = Mock(side_effect=launch)
    monkeypatch.setattr(opening, "launch", counted)
    return counted


def test_changed_settings_are_refused_by_name_before_anything_starts(tmp_path, stopped_copy, launching):
    stopped_copy(40)
    launching.reset_mock()
    agent = replace(tiny_options().agent, discount=0.9)
    evaluation = EvaluationOptions(every=40, episodes=3, environments=2)
    with pytest.raises(UserError, match=r"agent\.discount: 0\.9 was 0\.99\n  evaluation\.every: 40 was 50"):
        train(request(tmp_path, agent=agent, evaluation=evaluation))
    assert launching.call_count == 0
    listener = Recorder()
    train(request(tmp_path, agent=agent, allow_changes=True), listener)
    assert "agent.discount" in listener.warnings[0]


@pytest.mark.parametrize("allow", [False, True])
def test_another_task_is_another_run(tmp_path, stopped_copy, allow):
    stopped_copy(40)
    with pytest.raises(UserError, match=r"is a run of .*drift, not of .*counter; choose another --out"):
        train(request(tmp_path, task="tests.helpers.worlds:counter", allow_changes=allow))


@pytest.mark.parametrize(("agent_steps", "told"), [(30, True), (31, False)])
def test_a_run_of_random_steps_only_is_mentioned(tmp_path, agent_steps, told):
    listener = Recorder()
    train(request(tmp_path, agent_steps=agent_steps), listener)
    assert any("no updates will run: the first 30" in line for line in listener.warnings) is told


def test_a_run_that_a_cpu_will_not_finish_is_mentioned(tmp_path):
    heard = {}
    for name in ("ogspr", "drqv2", "small"):
        listener, options = Recorder(), preset_options(name, TASK)
        quick = replace(tiny_options(), agent=options.agent, agent_steps=1, replay=ReplayOptions(capacity=50))
        train(replace(request(tmp_path / name), preset=name, options=quick), listener)
        heard[name] = any("takes days on a CPU" in line for line in listener.warnings)
    assert heard == {"ogspr": True, "drqv2": True, "small": False}


def test_a_cpu_that_lacks_the_memory_hears_of_the_preset_for_one(tmp_path):
    """The advice about memory alone would lead to a run that takes days."""
    listener = Recorder()
    options = replace(preset_options("ogspr", TASK), replay=ReplayOptions(capacity=10**9))
    wanted = replace(request(tmp_path), options=replace(options, compute=tiny_options().compute))
    with pytest.raises(UserError, match=r"store at most \d+ steps each \(--replay.capacity\)"):
        train(wanted, listener)
    assert any("--preset small" in line for line in listener.warnings)


def test_a_replay_that_does_not_fit_is_refused_before_a_second_environment_starts(tmp_path, launching):
    with pytest.raises(UserError, match="does not fit"):
        train(request(tmp_path, seeds=(0, 1), replay=ReplayOptions(capacity=10**9)))
    assert launching.call_count == 1
    assert not list(tmp_path.iterdir())


def test_a_changed_learning_rate_is_used(tmp_path, stopped_copy):
    folder = stopped_copy(40)
    before = final_state(folder)["learner"]["tensors"]
    agent = replace(tiny_options().agent, learning_rate=0.0, weight_decay=0.0)
    train(request(tmp_path, agent=agent, allow_changes=True))
    after = final_state(folder)["learner"]["tensors"]
    assert_same(before["policy.layers.0.weight"], after["policy.layers.0.weight"])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"evaluation": EvaluationOptions(every=50, episodes=3, environments=3)},
            "2 evaluation environments, not 3",
        ),
        ({"agent": replace(tiny_options().agent, batch_size=8)}, r"features\.h"),
    ],
)
def test_what_cannot_change_is_refused_even_if_allowed(tmp_path, stopped_copy, changes, complaint):
    stopped_copy(40)
    with pytest.raises(UserError, match=f"does not fit these settings.*{complaint}"):
        train(request(tmp_path, allow_changes=True, **changes))


def test_what_does_not_decide_results_may_change(unbroken, tmp_path, stopped_copy):
    stopped_copy(40)
    waiting = replace(tiny_options().evaluation, overlap=False)
    train(request(tmp_path, keep=KeepOptions(tensorboard=False), evaluation=waiting))
    assert (tmp_path / "seed-0" / "eval.csv").read_text() == (unbroken / "eval.csv").read_text()


def test_two_processes_do_not_share_a_run(unbroken):
    folder = RunFolder(unbroken)
    folder.lock()
    try:
        child = train_in_child(request(unbroken.parent))
        assert exit_code(child) == 1
    finally:
        folder.unlock()
