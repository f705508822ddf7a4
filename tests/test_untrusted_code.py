"""A stranger's folder and a stranger's files: nothing of theirs is executed unless the user names it."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import ogspr
from ogspr import cli
from ogspr.agents.methods import ENTRY_POINTS
from ogspr.envs import EnvOptions, is_own_code, make, trust
from ogspr.errors import UserError
from ogspr.records.tree import load_tree, save_tree
from ogspr.training.options import EvaluationOptions, KeepOptions
from ogspr.training.policy_file import load_policy, save_policy
from tests.helpers.trajectories import ROOT
from tests.training.runs import request, train
from tests.training.test_sessions import Telling

TASK = "dmc:cartpole-swingup"
GRID = f"""
[[cells]]
tasks = "{TASK}"
presets = "small"
name = "short"
options = {{ agent_steps = 5, evaluation.episodes = 1, evaluation.environments = 1 }}
"""
LAUNCHERS = {
    "script": [str(Path(sys.executable).with_name("ogspr"))],
    "module": [sys.executable, "-m", "ogspr"],
}
# What libraries import where it is there, and what Python itself does as it starts.
OPTIONAL = (
    "boto3",
    "IPython",
    "jax",
    "pandas",
    "sitecustomize",
    "trackio",
    "triton",
    "usercustomize",
    "wandb",
)


# --- a folder full of traps ---------------------------------------------------------------------


def trap(marker: Path) -> str:
    """Code that leaves a trace, and needs nothing that could be a trap itself."""
    return f"with open({str(marker)!r}, 'a') as marks:\n    marks.write(__name__ + '\\n')\n"


def everything_importable() -> set[str]:
    """Names of all modules of Python and of installed packages."""
    names = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    return {name for name in names if name.isidentifier()}


def imported_before_any_program(folder: Path) -> set[str]:
    """What `python -m` imports from the current folder on its own account: nobody could prevent that."""
    (folder / "loaded.py").write_text("import sys\nprint(*sys.modules)\n")
    done = subprocess.run([sys.executable, "-m", "loaded"], cwd=folder, capture_output=True, text=True)
    (folder / "loaded.py").unlink()
    return {name.partition(".")[0] for name in done.stdout.split()}


def set_traps(folder: Path, marker: Path, names: set[str]) -> None:
    for name in names:
        (folder / f"{name}.py").write_text(trap(marker))
    # Entry points of packages, as importlib.metadata finds them beside modules.
    plugin = folder / "planted.egg-info"
    plugin.mkdir()
    (plugin / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    groups = ("gymnasium.envs", "torch.backends", ENTRY_POINTS)
    (plugin / "entry_points.txt").write_text("\n".join(f"[{name}]\n__root__ = planted:go" for name in groups))
    # Matplotlib complains about it if it reads it; versions before 3.11 evaluate it.
    (folder / "matplotlibrc").write_text("axes.prop_cycle: planted\nbackend: module://planted\n")
    # A repository in which any look at it starts a program.
    git = folder / ".git"
    for name in ("objects", "refs/heads"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(f"[core]\n\tfsmonitor = echo fsmonitor >> {marker}; false\n")


@pytest.fixture(scope="module")
def marker(tmp_path_factory):
    return tmp_path_factory.mktemp("marker") / "executed"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, marker):
    """A stranger's folder for each way to start the program."""
    script, module = (tmp_path_factory.mktemp(f"stranger-{name}") for name in LAUNCHERS)
    names = everything_importable() | {*OPTIONAL, "planted"}
    own = imported_before_any_program(module)
    set_traps(script, marker, names | {"ogspr"})
    set_traps(module, marker, names - own)
    (script / "multiprocessing.py").unlink()  # as a package, like the one it stands in for
    (script / "multiprocessing").mkdir()
    (script / "multiprocessing" / "__init__.py").write_text(trap(marker))
    return {"script": script, "module": module}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny one, of which everybody takes a copy or only reads."""
    folder = tmp_path_factory.mktemp("run")
    options = {
        "agent_steps": 40,
        "env": EnvOptions(image_size=36, action_repeat=100, shadows=False),  # episodes of 10 steps
        "evaluation": EvaluationOptions(every=40, episodes=1, environments=1),
        "keep": KeepOptions(checkpoint_minutes=100.0, replay="always"),  # some make it longer
    }
    train(request(folder, task=TASK, **options))
    return folder / "seed-0"


@pytest.fixture
def no_trace(marker):
    """Fails the test that leaves one, and no other."""
    marker.unlink(missing_ok=True)
    yield
    traces = marker.read_text().split() if marker.exists() else []
    assert traces == [], "code of the folder was executed"


def environment(*, gl_known: bool = True) -> dict[str, str]:
    """For a process; without what is known about OpenGL it has to try that itself."""
    about_gl = ("OGSPR_GL_DECISION", "MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "PYOPENGL_PLATFORM")
    kept = {name: value for name, value in os.environ.items() if gl_known or name not in about_gl}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def call(arguments: list[str], folder: Path, *, gl_known: bool = True) -> subprocess.CompletedProcess:
    variables = environment(gl_known=gl_known) | {"PYTHON": sys.executable}
    return subprocess.run(arguments, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)


# --- nothing that only lies in the folder -------------------------------------------------------


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("doctor", "ok    OpenGL"),
        ("tasks walker-w", "dmc:walker-walk"),
        ("eval {policy} --episodes 1", "mean        score"),
        ("play {run} --out {out}/film.mp4 --no-workers", "written"),
        ("export {run} {out}/policy.safetensors", "written"),
        ("train {task} --config {run}/config.json --agent-steps 5 --workers --out {out}/new", "is done"),
        ("train --resume {copy} --agent-steps 45", "is done"),
        (
            "probe {run} --episodes 2 --updates 1 --batch-size 2 --no-workers --out {out}/probe.csv",
            "probe.pdf",
        ),
        ("report {run} --out {out}/report", "1 figure"),
        ("rollout {task}", "environment dmc:cartpole-swingup"),
        ("sweep plan table5", "4 units"),
        ("sweep run {grid} --out {out}/sweep", "1 of 1 units are done"),
    ],
    ids=lambda value: value.split()[0] + ("-resume" if "--resume" in value else ""),
)
def test_a_command_in_a_strangers_folder_runs_nothing_of_it(words, told, launcher, folders, run, tmp_path):
    words = words.split()
    if "{copy}" in words:
        shutil.copytree(run, tmp_path / "copy")
    policy = run / "policies" / "best.safetensors"
    names = {"task": TASK, "run": run, "policy": policy, "out": tmp_path, "copy": tmp_path / "copy"}
    names["grid"] = tmp_path / "grid.toml"
    names["grid"].write_text(GRID)
    arguments = [*LAUNCHERS[launcher], *(word.format(**names) for word in words)]
    done = call(arguments, folders[launcher], gl_known=words[0] != "doctor")
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert "matplotlibrc" not in done.stderr


@pytest.mark.usefixtures("no_trace")
def test_measuring_in_a_strangers_folder_runs_nothing_of_it(folders):
    done = call([*LAUNCHERS["script"], "doctor", "--speed", TASK, "--preset", "small"], folders["script"])
    assert done.returncode == 0, done.stderr
    assert "bound by the" in done.stdout


@pytest.mark.usefixtures("no_trace")
def test_the_quickstart_in_a_strangers_folder_runs_nothing_of_it(folders, tmp_path):
    process = subprocess.Popen(
        [*LAUNCHERS["script"], "quickstart", "--out", str(tmp_path / "quick")],
        cwd=folders["script"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(line.startswith("new run") for line in process.stdout)
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 143


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_watching_runs_in_a_strangers_folder(launcher, folders, run):
    process = subprocess.Popen(
        [*LAUNCHERS[launcher], "watch", str(run), "--port", "0"],
        cwd=folders[launcher],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("watching")
        _, address, *_ = process.stdout.readline().split()
        with urllib.request.urlopen(f"{address}data.json", timeout=60) as answer:
            assert [found["folder"] for found in json.load(answer)["runs"]] == [str(run)]
    finally:
        process.terminate()
        process.wait()


@pytest.mark.usefixtures("no_trace")
def test_a_program_elsewhere_that_uses_a_policy_in_a_strangers_folder(folders, run, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, ogspr\n"
        "from ogspr.envs import launch\n"
        "if __name__ == '__main__':\n"
        "    agent = ogspr.load(sys.argv[1])\n"
        "    env, there = agent.make_env(seed=0), launch(sys.argv[2], seed=0)\n"
        "    step = env.step(agent.act(env.reset().observation))\n"
        "    print(step.reward >= 0, there.reset().observation.shape, 'PYTHONSAFEPATH' in os.environ)\n"
    )
    arguments = [sys.executable, str(program), str(run), TASK]
    done = call(arguments, folders["script"], gl_known=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True (9, 84, 84) False\n"


@pytest.mark.usefixtures("no_trace")
def test_the_script_that_looks_for_opengl_runs_nothing_of_the_folder(folders):
    done = call([str(ROOT / "scripts" / "ensure-opengl")], folders["script"], gl_known=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_process_that_a_command_starts_is_told_to_ignore_the_folder(monkeypatch):
    """Torch's compiler and Gymnasium's vector environments start Python as they like."""
    found = []
    code = "import sys; print(sys.flags.safe_path)"

    def command(_arguments):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        found.append(done.stdout.strip())
        return 0

    monkeypatch.setattr(cli, "_dispatch", command)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with pytest.raises(SystemExit):
        cli.main()
    assert found == ["True"]
    assert "PYTHONSAFEPATH" not in os.environ


def test_without_environment_variables_there_is_no_such_telling(tmp_path):
    done = call([sys.executable, "-E", "-m", "ogspr", "tasks"], tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "ogspr: error: Python was started with -E, so its processes would run modules of the current folder; "
        "add -P, or omit -E.\n"
    )
    assert call([sys.executable, "-E", "-P", "-m", "ogspr", "tasks"], tmp_path).returncode == 0


# --- what the user names ------------------------------------------------------------------------

MINE = """
import gymnasium, beside
from tests.helpers.worlds import Drift

gymnasium.register("Mine-v0", "mine:make")

def make():
    import later, subprocess, sys  # found only now, when all else is there
    # A program of the user's finds the modules beside it, as programs do.
    subprocess.run([sys.executable, "own/program.py"], check=True)
    return Drift()

def discrete():
    from tests.helpers.worlds import Counter
    return Counter()
"""
METHOD = "from examples.dqn import METHOD\nimport beside\n"


@pytest.fixture(scope="module")
def own_folders(folders, tmp_path_factory):
    """Of a user: with a world in them, and with names that others have, too."""
    copies = {}
    for launcher, folder in folders.items():
        copies[launcher] = tmp_path_factory.mktemp("own") / launcher
        shutil.copytree(folder, copies[launcher])
        (copies[launcher] / "mine.py").write_text(MINE)
        (copies[launcher] / "my_method.py").write_text(METHOD)
        for name in ("beside", "later"):
            (copies[launcher] / f"{name}.py").write_text("")
        (copies[launcher] / "own").mkdir()
        (copies[launcher] / "own" / "program.py").write_text("import near\n")
        (copies[launcher] / "own" / "near.py").write_text("")
    return copies


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("task", ["mine:make", "gym:mine:Mine-v0"])
def test_a_named_module_of_the_folder_runs_and_replaces_nothing(task, launcher, own_folders):
    done = call([*LAUNCHERS[launcher], "rollout", task, "--image-size", "36"], own_folders[launcher])
    assert done.returncode == 0, done.stderr
    assert f"environment {task}" in done.stdout


@pytest.mark.usefixtures("no_trace")
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_named_method_of_the_folder_trains_and_replaces_nothing(launcher, mode, own_folders, tmp_path):
    """In the process that trains, where TensorBoard, torch's compiler and plugins look for modules, too."""
    words = (
        "train mine:discrete --method my_method:METHOD --no-workers --agent.random-steps 20 --agent-steps 40 "
        "--evaluation.episodes 1 --evaluation.environments 1 --env.image-size 84 --compute.device cpu"
    )
    where = ["--compute.mode", mode, "--out", str(tmp_path)]
    done = call([*LAUNCHERS[launcher], *words.split(), *where], own_folders[launcher])
    assert done.returncode == 0, done.stderr
    assert "is done" in done.stdout


def importable_in(folder: Path, code: str) -> bool:
    """Whether code runs in a program that has named the module `mine` of a folder."""
    program = f"from ogspr.envs.trust import import_named\nassert import_named('mine')\n{code}\n"
    (folder.parent / "program.py").write_text(program)
    return call([sys.executable, str(folder.parent / "program.py")], folder).returncode == 0


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import mine", True),
        ("import beside", True),  # mine has imported it
        ("import my_package.deeper", True),
        ("import mine; mine.load('other')", True),
        ("import other", False),  # nobody has named it
        ("import json; exec('import other', vars(json))", False),  # as a library looks for an option
        ("import google.protobuf", True),  # an installed package without __init__.py
        ("import gymnasium; gymnasium.make('Mine-v0')", True),
        ("from importlib.metadata import distribution; distribution('planted')", False),
    ],
)
def test_what_is_found_in_the_folder_of_a_named_module(code, found, tmp_path):
    folder = tmp_path / "folder"
    (folder / "my_package").mkdir(parents=True)
    set_traps(folder, tmp_path / "marker", {"google"})
    for name in ("beside", "other", "my_package/__init__", "my_package/deeper"):
        (folder / f"{name}.py").write_text("")
    (folder / "my_world.py").write_text("from tests.helpers.worlds import Counter\n")
    (folder / "mine.py").write_text(
        "import importlib, gymnasium, beside, my_package\n"
        "gymnasium.register('Mine-v0', 'my_world:Counter')\n"
        "def load(name):\n    return importlib.import_module(name)\n"
    )
    assert importable_in(folder, code) == found
    assert not (tmp_path / "marker").exists()


def test_only_what_is_not_installed_is_looked_for_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    paths, before = list(sys.path), list(sys.meta_path)
    (tmp_path / "colorsys.py").write_text("raise AssertionError('executed')")
    (tmp_path / "google.py").write_text("raise AssertionError('executed')")
    trust.trust("colorsys")
    trust.trust("google")
    assert sys.meta_path == before
    (tmp_path / "mine").mkdir()
    for _ in range(2):
        trust.trust("mine")
    assert sys.meta_path[:-1] == before
    assert sys.path == paths


@pytest.mark.parametrize("task", ["colorsys:make", "colorsys.mine:make", "google:make"])
def test_a_module_with_the_name_of_another_is_told(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = task.partition(":")[0].partition(".")[0]
    (tmp_path / f"{name}.py").write_text("raise AssertionError('executed')")
    with pytest.raises(
        UserError, match=rf"The {name} in this folder is hidden by .*; give it another name\."
    ):
        make(task, seed=0)


@pytest.mark.parametrize(("chosen", "inside", "trusting"), [("1", "1", "1"), ("", "ogspr", None)])
def test_what_the_user_says_of_the_path_stays(chosen, inside, trusting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("PYTHONSAFEPATH", chosen)
    with trust.current_folder_ignored():
        with trust.current_folder_ignored():
            assert os.environ["PYTHONSAFEPATH"] == inside
        assert os.environ["PYTHONSAFEPATH"] == inside
        trust.trust("colorsys")
        assert os.environ["PYTHONSAFEPATH"] == inside
        trust.trust("mine")
        assert os.environ.get("PYTHONSAFEPATH") == trusting
    assert os.environ["PYTHONSAFEPATH"] == chosen


# --- what a file names --------------------------------------------------------------------------

HOSTILE = ("gym:planted_code:CartPole-v1", "planted_code:make", "planted_code.sub:make", "gym::CartPole-v1")


@pytest.fixture
def importable(tmp_path, marker, monkeypatch):
    """A module that any import would find, here and in workers."""
    place = tmp_path / "importable"
    place.mkdir()
    (place / "planted_code.py").write_text(trap(marker))
    monkeypatch.syspath_prepend(place)
    yield
    assert "planted_code" not in sys.modules


@pytest.fixture
def in_folder(monkeypatch, capfd, tmp_path):
    """`ogspr` in this process, in a folder."""

    def command(*arguments: object) -> subprocess.CompletedProcess:
        capfd.readouterr()
        with monkeypatch.context() as changed, pytest.raises(SystemExit) as end:
            changed.chdir(tmp_path)
            changed.setattr(sys, "argv", ["ogspr", *map(str, arguments)])
            cli.main()
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code, output, errors)

    return command


def hostile_run(run: Path, folder: Path, task: str) -> Path:
    """A copy that says it is of another task, in all places."""
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"task": task}))
    for path in (folder / "policies").iterdir():
        policy = load_policy(path)
        save_policy(path, replace(policy, origin=policy.origin | {"task": task}))
    return folder


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("task", HOSTILE)
@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("eval {run} --no-workers", "--task {task}"),
        ("eval {run}/policies/last.safetensors", "--task {task}"),
        ("play {run} --no-workers", "--task {task}"),
        ("probe {run} --no-workers --episodes 2", "--task {task}"),
        ("train --resume {run}", "ogspr train {task} --resume {run}"),
        ("train --config {run}/config.json", "ogspr train {task} --config {run}/config.json"),
        ("train --quiet --config {run}/mine.toml", "ogspr train {task} --config {run}/mine.toml"),
    ],
)
def test_code_that_only_a_file_names_is_refused(words, how, task, run, tmp_path, in_folder):
    folder = hostile_run(run, tmp_path / "hostile", task)
    (folder / "mine.toml").write_text(f'task = "{task}"\n')
    done = in_folder(*(word.format(run=folder) for word in words.split()))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert (
        f"would run the code {task}; if you trust it, add: {how.format(task=task, run=folder)}" in done.stderr
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("task", HOSTILE)
def test_a_loaded_agent_makes_no_environment_of_code_that_its_file_names(task, run, tmp_path):
    agent = ogspr.load(hostile_run(run, tmp_path / "hostile", task))
    with pytest.raises(UserError, match="would run the code"):
        agent.make_env(seed=0)
    with pytest.raises(UserError, match="belongs to the task"):
        agent.make_env(seed=0, task="gym:CartPole-v1")


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("words", ["export {run} out.safetensors", "report {run}"])
def test_what_needs_no_environment_reads_hostile_files_all_the_same(words, run, tmp_path, in_folder):
    folder = hostile_run(run, tmp_path / "hostile", HOSTILE[0])
    assert in_folder(*words.format(run=folder).split()).returncode == 0


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize(
    ("task", "shown", "copied"),
    [
        (
            "planted_code:make; touch pwned",
            "planted_code:make; touch pwned",
            "'planted_code:make; touch pwned'",
        ),
        ("planted_code:$(touch pwned)", "planted_code:$(touch pwned)", "'planted_code:$(touch pwned)'"),
        ("planted_code:a\x1b[2J\nb", r"planted_code:a\x1b[2J\nb", r"'planted_code:a\x1b[2J\nb'"),
    ],
)
def test_a_task_in_a_file_puts_nothing_else_into_a_command_to_copy(
    task, shown, copied, run, tmp_path, in_folder
):
    folder = hostile_run(run, tmp_path / "hostile", task)
    done = in_folder("eval", folder)
    said = f"would run the code {shown}; if you trust it, add: --task {copied}\n"
    assert done.stderr.endswith(said) and len(done.stderr.splitlines()) == 1


HOSTILE_METHODS = ("planted_code:METHOD", "planted_code", "planted_code.sub:METHOD")


def with_method(run: Path, folder: Path, method: str) -> Path:
    """A copy whose files say that it was trained by another method."""
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"method": method}))
    for path in (folder / "policies").iterdir():
        save_tree(path, load_tree(path, "ogspr-policy-1") | {"method": method}, "ogspr-policy-1")
    return folder


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("method", HOSTILE_METHODS)
@pytest.mark.parametrize(
    "words",
    [
        "eval {run} --no-workers",
        "eval {run}/policies/last.safetensors --no-workers",
        "play {run} --no-workers",
        "export {run} out.safetensors",
        "probe {run} --no-workers --episodes 2",
        "train --resume {run}",
        "train --config {run}/config.json",
    ],
)
def test_a_method_that_only_a_file_names_is_refused(words, method, run, tmp_path, in_folder):
    """There is no code to be found by its name: methods are installed, or named by the user."""
    folder = with_method(run, tmp_path / "hostile", method)
    done = in_folder(*(word.format(run=folder) for word in words.split()))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"needs the method {method!r}, which is not installed" in done.stderr


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("method", HOSTILE_METHODS)
@pytest.mark.parametrize("file", ["", "policies/best.safetensors"])
def test_a_method_that_only_a_file_names_is_not_loaded(file, method, run, tmp_path):
    folder = with_method(run, tmp_path / "hostile", method)
    with pytest.raises(UserError, match="which is not installed"):
        ogspr.load(folder / file)


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('method = "planted_code:METHOD"', "unknown setting"),
        ('preset = "planted_code:METHOD"', "unknown preset"),
        ('agent = "planted_code:METHOD"', "agent"),
        ('[agent]\nmethod = "planted_code:METHOD"', "unknown setting"),
    ],
)
def test_a_settings_file_names_no_method(text, complaint, tmp_path, in_folder):
    (tmp_path / "mine.toml").write_text(text)
    done = in_folder("train", TASK, "--config", "mine.toml")
    assert done.returncode == 2
    assert complaint in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("no_trace", "importable")
@pytest.mark.parametrize("option", ["--resume", "--out", "--config"])
def test_a_path_is_no_task_that_a_user_has_named(option, run, tmp_path, in_folder):
    """A stranger may call a folder as a task is called, and the task in it, too."""
    name = "planted_code:make"
    hostile_run(run, tmp_path / name, name)
    (tmp_path / "planted_code.py").write_text("raise AssertionError('executed')")
    path = f"{name}/config.json" if option == "--config" else name
    if option == "--config":
        shutil.copy(tmp_path / path, tmp_path / "planted_code:config.json")
        path = "planted_code:config.json"
    done = in_folder("train", option, path)
    assert done.returncode == 2
    assert ("no task given" if option == "--out" else "would run the code") in done.stderr


def test_a_task_is_found_behind_an_option_with_a_colon(run, in_folder):
    done = in_folder("train", "--keep.wandb", "team:project", "--resume", run, "dmc:walker-walk")
    assert f"belongs to the task {TASK}, not to dmc:walker-walk." in done.stderr
    done = in_folder("train", "--out", "a:b", "dmc:walker-wlak")
    assert "did you mean dmc:walker-walk" in done.stderr


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("dmc:walker-walk", False),
        ("atari:Pong", False),
        ("gym:CartPole-v1", False),
        ("gym:ALE/Pong-v5", False),
        ("gym:module:CartPole-v1", True),
        ("gym::CartPole-v1", True),
        ("module:factory", True),
        ("GYM:CartPole-v1", True),
        (" gym:CartPole-v1", True),
    ],
)
def test_what_counts_as_code(task, code):
    assert is_own_code(task) == code


@pytest.mark.parametrize("module", ["", ".relative", "a:b", "a-b", "a b"])
def test_what_cannot_be_a_module_is_no_business_of_gymnasiums(module):
    with pytest.raises(UserError, match="is not a module; expected gym:<id>"):
        make(f"gym:{module}:CartPole-v1", seed=0)


# --- where numbers go ---------------------------------------------------------------------------


class Reached(Exception):
    """Somebody wants the library that would send numbers away."""


@pytest.fixture
def services(monkeypatch):
    def refuse(module, _option):
        raise Reached(module)

    monkeypatch.setattr("ogspr.records.sinks._optional", refuse)


@pytest.mark.usefixtures("services")
@pytest.mark.parametrize(
    ("option", "service"), [("wandb", "Weights & Biases"), ("trackio", "trackio")], ids=["wandb", "trackio"]
)
@pytest.mark.parametrize("kind", ["--resume", "--config"])
def test_numbers_that_a_file_sends_away_are_announced(kind, option, service, run, tmp_path, in_folder, capfd):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    config["options"]["keep"][option] = "their\nproject"
    (folder / "config.json").write_text(json.dumps(config))
    place = folder if kind == "--resume" else folder / "config.json"
    with pytest.raises(Reached):
        in_folder("train", kind, place, "--quiet")
    assert capfd.readouterr().err == (
        f"warning: the metrics of this run are sent to the project 'their\\nproject' of {service}, "
        f"because {place} says so; --keep.{option} None prevents that.\n"
    )
    with pytest.raises(Reached):
        in_folder("train", kind, place, "--quiet", f"--keep.{option}", "mine")
    assert capfd.readouterr().err == ""
    if kind == "--resume":  # it is at its end already
        done = in_folder("train", kind, place, "--quiet", f"--keep.{option}", "None")
        assert (done.returncode, done.stderr) == (0, "")


def test_weights_and_biases_does_not_ask_git_about_the_current_folder(tmp_path, monkeypatch):
    library = Telling()
    monkeypatch.setattr("ogspr.records.sinks._optional", lambda *_: library)
    train(request(tmp_path, agent_steps=20, keep=KeepOptions(wandb="project")))
    assert library.settings["settings"] == {"disable_git": True}


def test_a_folder_called_wandb_is_no_package(tmp_path, monkeypatch):
    from ogspr.records.sinks import _optional

    (tmp_path / "trackio_of_mine").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="pip install trackio_of_mine"):
        _optional("trackio_of_mine", "--keep.trackio")
