"""Choosing OpenGL: by trying, in a subprocess, and without surprises for the user's own choice."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ogspr.envs import gl
from ogspr.errors import UserError
from tests.helpers.trajectories import ROOT


@pytest.fixture
def undecided(monkeypatch):
    """A process in which nothing was chosen yet, by us or by the user."""
    for name in (gl._DECISION, "MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    gl.find.cache_clear()
    yield monkeypatch
    gl.find.cache_clear()


@pytest.fixture
def probes(undecided):
    """Replaces the subprocess by a table of answers; returns the list of what was tried."""
    tried = []

    def install(devices, answers):
        def run(arguments, variables):
            if arguments == ["list"]:
                return {"devices": devices}, ""
            key = (variables["MUJOCO_GL"], variables.get("MUJOCO_EGL_DEVICE_ID"))
            tried.append(key)
            if key in answers:
                return {"renderer": answers[key]}, ""
            return None, "broken"

        undecided.setattr(gl, "_run_probe", run)
        return tried

    return install


NVIDIA, OTHER_NVIDIA = {"cuda": 0, "software": False}, {"cuda": 1, "software": False}
SOFTWARE = {"cuda": None, "software": True}


@pytest.mark.usefixtures("undecided")
def test_this_machine_can_draw():
    backend = gl.find()
    assert backend.name in gl.BACKENDS
    assert backend.renderer


def test_the_gpu_comes_before_software(probes):
    tried = probes([SOFTWARE, NVIDIA], {("egl", "1"): "NVIDIA H200", ("egl", "0"): "llvmpipe"})
    assert gl.find() == gl.Backend("egl", 1, "NVIDIA H200")
    assert tried == [("egl", "1")]
    assert not gl.find().software


def test_the_gpu_that_trains_is_the_gpu_that_draws(probes):
    probes([NVIDIA, OTHER_NVIDIA, SOFTWARE], {("egl", "0"): "first", ("egl", "1"): "second"})
    assert gl.find(cuda_device=1).device == 1
    assert gl.find(cuda_device=0).device == 0


def test_a_broken_driver_falls_back_to_software(probes):
    tried = probes([NVIDIA, SOFTWARE], {("egl", "1"): "llvmpipe"})
    backend = gl.find()
    assert backend.software
    assert tried == [("egl", "0"), ("egl", "1")]


def test_osmesa_serves_where_egl_does_not(probes):
    tried = probes([], {("osmesa", None): "softpipe"})
    assert gl.find().name == "osmesa"
    assert tried == [("egl", None), ("osmesa", None)]


def test_without_any_the_error_says_what_to_install(probes):
    probes([], {})
    with pytest.raises(UserError) as error:
        gl.find()
    for system in ("apt-get install -y libegl1", "dnf install", "conda install"):
        assert system in str(error.value)


def test_the_users_choice_is_respected(probes, undecided):
    undecided.setenv("MUJOCO_GL", "osmesa")
    tried = probes([NVIDIA], {("egl", "0"): "NVIDIA", ("osmesa", None): "softpipe"})
    assert gl.find().name == "osmesa"
    assert tried == [("osmesa", None)]


def test_the_users_device_is_respected(probes, undecided):
    undecided.setenv("MUJOCO_EGL_DEVICE_ID", "7")
    probes([NVIDIA], {("egl", "0"): "NVIDIA"})
    with pytest.raises(UserError, match="MUJOCO_EGL_DEVICE_ID=7 does not work here"):
        gl.find()
    undecided.setenv("MUJOCO_EGL_DEVICE_ID", "1")
    tried = probes([NVIDIA, SOFTWARE], {("egl", "1"): "llvmpipe"})
    tried.clear()
    assert gl.find().device == 1
    assert tried == [("egl", "1")]


def test_a_users_choice_that_fails_is_not_replaced_silently(probes, undecided):
    undecided.setenv("MUJOCO_GL", "osmesa")
    probes([NVIDIA], {("egl", "0"): "NVIDIA"})
    with pytest.raises(UserError, match=r"MUJOCO_GL=osmesa does not work here.*unset it"):
        gl.find()


@pytest.mark.parametrize(
    ("value", "message"),
    [("elg", "did you mean egl"), ("vulkan", "known: egl, glfw, osmesa"), ("off", "switches rendering off")],
)
def test_impossible_choices_are_named(undecided, value, message):
    undecided.setenv("MUJOCO_GL", value)
    with pytest.raises(UserError, match=message):
        gl.find()


def test_a_crashing_driver_ends_the_probe_and_not_the_run(undecided):
    undecided.setattr(sys, "executable", "/bin/false")
    assert gl._run_probe(["draw"], {}) == (None, "failed")


def test_a_probe_killed_by_a_signal_is_a_failure(undecided, tmp_path):
    crash = tmp_path / "python"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(crash.stat().st_mode | stat.S_IXUSR)
    undecided.setattr(sys, "executable", str(crash))
    assert gl._run_probe(["draw"], {}) == (None, "killed by signal 11")


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("Traceback\nAttributeError: 'NoneType' object has no attribute 'eglX'", "library not installed"),
        ("one\ntwo: " + "x" * 200, "two: " + "x" * 85 + "..."),
        ("", "failed"),
    ],
)
def test_a_failed_probe_is_told_in_few_words(stderr, reason):
    assert gl._reason(stderr) == reason


def test_mujoco_imported_too_early_is_explained():
    code = "import mujoco, ogspr\nogspr.make_env('dmc:cartpole-balance', seed=0)"
    hidden = (gl._DECISION, "MUJOCO_GL")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert "set MUJOCO_GL=egl, or make the environment before importing mujoco" in done.stderr


def test_the_decision_reaches_child_processes(opengl):
    code = "import json; from ogspr.envs import gl; print(json.dumps(gl.decided().renderer))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(done.stdout) == opengl.renderer


def ensure_opengl(folder: Path, user: str, works_after_install: bool) -> subprocess.CompletedProcess:
    """Runs scripts/ensure-opengl on a pretended machine; `apt-get` writes down its arguments."""
    commands = {
        "python": 'case "$3" in --debian-packages) echo libegl1 libgl1;; *) '
        f'test -e {folder}/installed || {{ test -n "$3" || echo what to install >&2; exit 2; }};; esac',
        "id": f"echo {0 if user == 'root' else 1000}",
        "apt-get": f'echo "$@" >> {folder}/apt.log'
        + (f"; case $1 in install) touch {folder}/installed;; esac" if works_after_install else "; exit 100"),
    }
    for name, body in commands.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
    return subprocess.run(
        [str(ROOT / "scripts" / "ensure-opengl")],
        env={"PATH": f"{folder}:/usr/bin:/bin", "PYTHON": str(folder / "python")},
        capture_output=True,
        text=True,
    )


def test_as_root_on_debian_the_libraries_are_installed(tmp_path):
    done = ensure_opengl(tmp_path, "root", works_after_install=True)
    assert done.returncode == 0, done.stderr
    assert "installing libegl1 libgl1" in done.stdout
    assert "install -y -qq libegl1 libgl1" in (tmp_path / "apt.log").read_text()


def test_a_failing_installation_still_says_what_to_do(tmp_path):
    done = ensure_opengl(tmp_path, "root", works_after_install=False)
    assert done.returncode != 0
    assert "what to install" in done.stderr


def test_other_users_are_told_what_to_install(tmp_path):
    done = ensure_opengl(tmp_path, "somebody", works_after_install=True)
    assert done.returncode != 0
    assert "what to install" in done.stderr
    assert not (tmp_path / "apt.log").exists()


@pytest.mark.gpu
@pytest.mark.usefixtures("undecided")
def test_on_a_gpu_machine_the_gpu_draws():
    backend = gl.find()
    assert (backend.name, backend.software) == ("egl", False), backend
    assert backend.device == gl._egl_devices(cuda_device=0)[0]


@pytest.mark.gpu
@pytest.mark.parametrize(("visible", "ordinal"), [("0", 0), ("", None)])
def test_egl_counts_the_devices_that_cuda_sees(undecided, visible, ordinal):
    undecided.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer, reason = gl._run_probe(["list"], {"PYOPENGL_PLATFORM": "egl"})
    assert answer, reason
    assert [device["cuda"] for device in answer["devices"] if not device["software"]] == [ordinal]
