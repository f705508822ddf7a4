"""Help and mistakes on the way to a training run: told first, and before anything heavy is imported."""

import os
import subprocess
import sys

import pytest

from ogspr.envs import EnvOptions, check_task, launch
from ogspr.errors import UserError
from tests.helpers.trajectories import ROOT


@pytest.fixture
def without_torch(tmp_path):
    """`python -m ogspr` where nobody can import torch."""
    (tmp_path / "torch.py").write_text("raise ImportError('somebody wants torch')")

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "ogspr", *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("preset", ["ogspr", "mrq", "drqv2", "small"])
def test_help_needs_no_torch(preset, without_torch):
    done = without_torch("train", "--preset", preset, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--agent.discount" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dmc:wlker-walk", "unknown dmc task 'dmc:wlker-walk'; did you mean dmc:walker-walk or"),
        ("dcm:walker-walk", "unknown suite or module 'dcm'; did you mean dmc?"),
        ("atari:Pnog", "unknown Atari game 'atari:Pnog'; did you mean atari:Pong?"),
        ("walker-walk", "'walker-walk' is not an environment name;"),
        ("atari:Pong --env.camera 1", "the option camera does not apply to atari environments;"),
        ("dmc:walker-walk --preset ogsrp", "unknown preset 'ogsrp'; did you mean ogspr or"),
        ("dmc:walker-walk --seeds 1 1", "--seeds needs one or more distinct integers, got 1, 1."),
        ("dmc:walker-walk --seeds", "--seeds needs one or more distinct integers, got none."),
        ("--resume nowhere", "nowhere is not a run folder (no config.json). Pass the folder of a run."),
    ],
)
def test_a_mistake_is_the_only_line_and_needs_no_torch(words, expected, without_torch):
    done = without_torch("train", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ogspr: error: {expected}")
    assert len(done.stderr.splitlines()) == 1


def test_a_mistyped_option_needs_no_torch(without_torch):
    done = without_torch("train", "dmc:walker-walk", "--agent.discont", "0.9")
    assert done.returncode == 2
    assert "Perhaps you meant" in done.stderr
    assert "--agent.discount" in done.stderr


def test_what_only_an_environment_finds_is_told_before_any_advice(ogspr_here, tmp_path):
    """The preset was made for a GPU, which nobody needs to hear whose environment does not exist."""
    done = ogspr_here("train", "gym:CartPol-v1", "--compute.device", "cpu", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "ogspr: error: unknown Gymnasium environment 'gym:CartPol-v1'; did you mean"
    )


def test_a_name_is_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr("ogspr.envs.registry.WorkerEnvironment", None)
    monkeypatch.setattr("ogspr.envs.gl.activate", None)
    with pytest.raises(UserError, match="did you mean dmc:walker-walk"):
        launch("dmc:walker-wlak", seed=0)


@pytest.mark.parametrize("name", ["dmc:walker-walk", "atari:Pong", "gym:CartPole-v1", "examples.chase:make"])
def test_names_that_are_right(name):
    check_task(name, EnvOptions(image_size=40))


def test_code_in_the_folder_a_user_works_in_is_found_and_not_executed(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text("raise AssertionError('executed')")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    check_task("my_worlds:make")
    assert sys.path == path
    with pytest.raises(UserError, match="unknown suite or module 'my_wolds'"):
        check_task("my_wolds:make")
