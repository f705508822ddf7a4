"""The command line as a user meets it: output, messages, exit codes."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest

from ogspr.agents.methods import all_preset_names
from tests.helpers.trajectories import ROOT

WORLDS = "tests.helpers.worlds"


def ogspr(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "ogspr", *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def test_a_process_ends_with_the_same_line_and_code(ogspr_here):
    there, here = ogspr("eval", "nowhere"), ogspr_here("eval", "nowhere")
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)
    assert there.returncode == 2


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rollout dcm:walker-walk", "did you mean dmc?"),
        ("rollout dmc:walker-wlak", "did you mean dmc:walker-walk"),
        ("rollout atari:Pnog", "did you mean atari:Pong"),
        ("rollout gym:CartPol-v1", "CartPole-v1"),
        ("rollout walker-walk", "expected dmc:<domain>-<task>"),
        ("rollout atari:Pong --image-size -3", "image size must be at least 1, got -3"),
        ("rollout atari:Pong --episodes 0", "episodes must be at least 1, got 0"),
        ("rollout atari:Pong --seed -1", "seed must be from 0 to 4294967295"),
        ("rollout dmc:walker-walk --seed 99999999999", "seed must be from 0 to 4294967295"),
        ("rollout ./mine.py:make", "Name a file of your own by its module: mine:factory."),
        ("rollout some/where/mine.py:make", "unknown suite or module 'some/where/mine.py'"),
        ("rollout atari:Pong --out README.md", "cannot write README.md"),
        ("rollout atari:Pong --out README.md/run", "cannot write README.md/run"),
        ("rollout atari:Pong --video README.md/film.mp4", "cannot write README.md"),
        ("rollout atari:Pong --video /proc/film.mp4", "cannot write /proc/film.mp4"),
        ("rollout atari:Pong --atari-protocol machado", "did you mean machado2018"),
        ("rollout atari:Pong --camera 1", "option camera does not apply to atari"),
        ("rollout atari:Pong --video film.avi", "must end in .mp4 or .gif"),
        (f"rollout {WORLDS}:refusing", "this world needs a moon"),
        ("tasks qwxz", "no task name contains 'qwxz'; nothing similar is known."),
        ("tasks wlker", "no task name contains 'wlker'; did you mean walker or walk?"),
        ("tasks walker-wlak", "did you mean walker-walk"),
        ("tasks dmc:wlker-walk", "did you mean dmc:walker-walk"),
        ("tasks pnog", "did you mean Pong"),
        ("tasks atri", "did you mean atari"),
        ("bench", "`ogspr bench` has moved: run `python -m benchmarks` in a checkout"),
        ("bench update --updates 20", "or `ogspr doctor --speed`"),
        ("doctor dmc:walker-walk", "ogspr doctor --speed dmc:walker-walk"),
        ("doctor --preset small", "apply to --speed only"),
        ("doctor --speed dmc:walker-wlak", "did you mean dmc:walker-walk"),
        ("doctor --speed dmc:walker-walk --preset smal", "unknown preset 'smal'; did you mean small"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(command, expected, ogspr_here):
    done = ogspr_here(*command.split())
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_an_unknown_gl_backend_is_one_line_and_exit_code_2():
    done = ogspr("rollout", "dmc:walker-walk", MUJOCO_GL="elg", OGSPR_GL_DECISION="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ogspr: error: unknown GL backend MUJOCO_GL 'elg'; did you mean egl? "
        "Unset it to let ogspr choose one.\n"
    )


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        ("rolout atari:Pong", "unknown command 'rolout'; did you mean rollout"),
        ("reprot runs", "did you mean report"),
        ("rollout atari:Pong --episods 3", "--episodes"),
    ],
)
def test_misspelt_commands_and_options_get_suggestions(command, suggestion, ogspr_here):
    done = ogspr_here(*command.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert suggestion in done.stderr


def test_tasks_shows_actions_and_the_papers_score():
    done = ogspr("tasks", "WALKER-w")
    assert done.returncode == 0
    [row] = [line.split() for line in done.stdout.splitlines() if "dmc:" in line]
    assert row == ["dmc:walker-walk", "6", "continuous", "968"]


@pytest.mark.parametrize("words", ["train --help", "tasks", "--version"])
def test_a_reader_that_has_read_enough_is_no_failure(words):
    """As `ogspr tasks | head -1` is: with no line about it."""
    arguments = [sys.executable, "-m", "ogspr", *words.split()]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read().decode() == ""
    assert process.wait() == 141


def test_the_version_can_be_asked_for():
    from ogspr import __version__

    assert ogspr("--version").stdout == f"ogspr {__version__}\n"


def test_another_protocol_is_not_compared_with_the_paper():
    done = ogspr("rollout", "atari:Boxing", "--action-repeat", "40")
    assert "random policy" in done.stdout
    assert "in the paper" not in done.stdout


def test_tables_keep_whole_names_in_narrow_terminals():
    done = ogspr("tasks", "walker", COLUMNS="40")
    assert all(name in done.stdout for name in ("walker-stand", "walker-walk", "walker-run"))


def test_tasks_lists_everything():
    lines = ogspr("tasks").stdout.splitlines()
    assert sum("dmc:" in line for line in lines) == 51
    assert sum("atari:" in line for line in lines) == 104
    assert "155 tasks, 54 in the paper" in " ".join(lines)


def test_rollout_of_a_users_own_factory_is_stored(tmp_path):
    """The example of examples/, from the command line, without touching the package."""
    done = ogspr("rollout", "examples.chase:make", "--episodes", "2", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "protocol    suite=gymnasium" in done.stdout
    with (tmp_path / "run" / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["episode"] for row in rows] == ["1", "2"]
    assert all(int(row["agent_steps"]) <= 200 and float(row["score"]) < 0 for row in rows)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["environment"]["name"] == "examples.chase:make"
    assert manifest["settings"]["episodes"] == 2
    assert "--episodes 2" in manifest["command"]


def test_the_protocol_of_an_atari_run_is_printed_and_stored(tmp_path):
    done = ogspr("rollout", "atari:Boxing", "--atari-protocol", "machado2018", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "preset=machado2018" in done.stdout
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["environment"]["protocol"]["sticky_actions"] == 0.25


def test_rollout_makes_a_video(tmp_path):
    video = tmp_path / "films" / "chase.mp4"
    assert ogspr("rollout", "examples.chase:make", "--video", str(video)).returncode == 0
    import imageio.v2 as imageio

    frames = imageio.mimread(video)
    assert 1 < len(frames) <= 201
    assert frames[0].shape == (336, 336, 3)


def test_faults_are_counted_and_reported_and_the_run_goes_on():
    done = ogspr("rollout", f"{WORLDS}:infinite_reward", "--episodes", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("non-finite reward inf") == 2
    assert "simulator faults in 2 of 2 episodes" in done.stdout


@pytest.mark.parametrize("world", ["raising", "killed"])
def test_an_environment_that_fails_ends_the_command(world):
    done = ogspr("rollout", f"{WORLDS}:{world}")
    assert done.returncode == 1
    expected, tracebacks = {
        "raising": ("the world fell apart", 1),
        "killed": ("died (signal SIGKILL)", 0),
    }[world]
    assert expected in done.stderr
    assert done.stderr.count("Traceback") == tracebacks  # the worker's own, not a second of ours


def test_ctrl_c_ends_quietly_with_130():
    import signal
    import time

    process = subprocess.Popen(
        [sys.executable, "-m", "ogspr", "rollout", f"{WORLDS}:endless"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout.readline().startswith("environment")
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "ogspr: interrupted\n")


def test_atari_works_without_opengl(tmp_path):
    """No GL library can be loaded and MuJoCo cannot even be imported."""
    for name in ("mujoco", "dm_control", "OpenGL"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not on this machine')")
    done = ogspr(
        "rollout", "atari:Boxing", PYTHONPATH=f"{tmp_path}:{ROOT}", MUJOCO_GL="", OGSPR_GL_DECISION=""
    )
    assert done.returncode == 0, done.stderr
    assert "atari:Boxing" in done.stdout


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train", "no task given; for example: ogspr train dmc:walker-walk"),
        ("report", "no runs were given"),
        ("report /nowhere", "/nowhere is not a folder"),
        ("report docs --out /tmp/ogspr-no-report", "docs: contains no runs"),
        ("watch", "no runs were given"),
        ("watch docs --port 99999", "cannot listen on 127.0.0.1:99999"),
        ("probe", "no runs were given"),
        ("probe docs", "is not a run folder"),
        ("train dmc:walker-wlak --agent-steps 10", "did you mean dmc:walker-walk"),
        ("train dmc:walker-walk --preset ogsrp", "unknown preset 'ogsrp'; did you mean ogspr"),
        ("train dmc:walker-walk --preset xyz", "known: adapter2-only, anonmethod, as-written, drqv2"),
        ("train dmc:walker-walk --preset drqv2 --agent.exploration-noise 1", "train --preset drqv2 --help"),
        ("train cheetah-run", "for example dmc:cheetah-run"),
        ("train pong", "for example atari:Pong"),
        ("train dmc:walker-walk --agent.discont 0.9", "--agent.discount"),
        ("train dmc:walker-walk --agent.discount high", "high"),
        ("train dmc:walker-walk --seeds 1 1", "one or more distinct integers, got 1, 1."),
        ("train dmc:walker-walk --agent.discount 98", "discount must be from 0 to 1, got 98"),
        ("train dmc:walker-walk --preset mrq --agent.discount 98", "discount must be from 0 to 1, got 98"),
        ("train dmc:walker-walk --preset drqv2 --agent.random-stpes 9", "--agent.random-steps"),
        ("train dmc:walker-walk --agent.updates-per-step 0", "updates per step must be at least 1, got 0"),
        ("train dmc:walker-walk --agent.learning-rate -1", "learning rate must be at least 0, got -1"),
        ("train dmc:walker-walk --agent.short-term-value.bins 64", "short term value bins must be odd"),
        ("train dmc:walker-walk --agent-steps 0", "agent steps must be at least 1, got 0"),
        ("train dmc:walker-walk --evaluation.environments 20", "20 evaluation environments for 10 episodes"),
        ("train dmc:walker-walk --keep.checkpoint-minutes 0", "checkpoint minutes must be above 0"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        (
            "train --resume results/learning/walker-walk-mrq",
            "did you mean results/learning/walker-walk-mrq/seed-1",
        ),
        ("train --resume nowhere --config a.toml", "omit --config"),
        ("train --config {code}", "would run the code mine:make"),
        ("train dmc:walker-walk --config {seeds}", "seeds: expected"),
        ("train dmc:walker-walk --config nowhere.toml", "cannot read nowhere.toml"),
        ("train dmc:walker-walk --config README.md", "README.md is not TOML"),
        ("train dmc:walker-walk --config {typo}", "did you mean batch_size"),
        ("train atari:Pong --out README.md", "cannot write README.md/seed-0"),
        ("eval nowhere", "nowhere does not exist"),
        ("eval README.md", "cannot read README.md"),
        ("play docs", "docs is not a run folder (no config.json). Pass the folder of a run."),
        ("eval results/learning/walker-walk-mrq", "did you mean results/learning/walker-walk-mrq/seed-1?"),
        ("export docs out.safetensors", "docs is not a run folder"),
    ],
)
def test_mistakes_in_training_get_a_line_and_no_traceback(command, expected, tmp_path, ogspr_here):
    (tmp_path / "typo.toml").write_text("[agent]\nbatch_sise = 4\n")
    (tmp_path / "code.toml").write_text('task = "mine:make"\n')
    (tmp_path / "seeds.toml").write_text("seeds = 5\n")
    files = {path.stem: path for path in tmp_path.iterdir()}
    done = ogspr_here(*command.format(**files).split())
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_gpu_that_is_not_there_is_told():
    done = ogspr("train", "dmc:walker-walk", "--compute.device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "no CUDA device is usable" in done.stderr


def test_the_help_of_train_shows_the_defaults_of_the_task(ogspr_here):
    done = ogspr("train", "atari:Pong", "--help", COLUMNS="200")
    assert done.returncode == 0
    assert "default: 100000" in done.stdout  # agent steps
    assert "--agent.observation.weight" in done.stdout

    def help_of(preset):
        done = ogspr_here("train", "dmc:a-b", "--preset", preset, "--help")
        assert done.returncode == 0
        return done.stdout

    assert "--agent.observation" not in help_of("ogspr-op")
    assert "--agent.encoder-learning-rate" in help_of("mrq")
    assert "--agent.noise-steps" in help_of("drqv2")


def test_the_help_of_train_names_every_preset(ogspr_here):
    done = ogspr_here("train", "--help", COLUMNS="200")
    about = done.stdout.partition("--preset")[2].partition("--seeds")[0]
    assert set(all_preset_names()) <= set(re.findall(r"[\w-]+", about))
