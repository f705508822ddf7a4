"""The doctor's judgement, on this machine and on pretended ones."""

import pytest
from rich.console import Console

from ogspr.commands import doctor
from ogspr.envs import gl
from ogspr.errors import UserError

GB = 10**9


@pytest.mark.usefixtures("opengl")
def test_this_machine_is_examined():
    console = Console(record=True, width=200)
    assert doctor.doctor(console)
    text = console.export_text()
    for subject in ("system", "packages", "OpenGL", "CUDA", "memory"):
        assert subject in text
    assert "frames a second of cheetah-run" in text


def test_a_missing_opengl_is_a_failure_with_install_lines(monkeypatch):
    def nothing():
        raise UserError(f"no working OpenGL was found.\n{gl.INSTALL_HELP}")

    monkeypatch.setattr(gl, "activate", nothing)
    finding = doctor._opengl()
    assert finding.status == "FAIL"
    assert "apt-get install" in finding.fix


def test_software_rendering_beside_a_gpu_is_a_warning(monkeypatch):
    monkeypatch.setattr(gl, "activate", lambda: gl.Backend("egl", 1, "llvmpipe"))
    monkeypatch.setattr(gl, "nvidia_gpu_present", lambda: True)
    monkeypatch.setattr(doctor, "_frames_per_second", lambda: 40.0)
    finding = doctor._opengl()
    assert finding.status == "warn"
    assert "software, although there is an NVIDIA GPU" in finding.detail
    assert "10_nvidia.json" in finding.fix


def test_a_gpu_that_torch_cannot_use_is_a_warning(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gl, "nvidia_gpu_present", lambda: True)
    finding = doctor._cuda()
    assert finding.status == "warn"
    assert "CUDA build of torch" in finding.fix


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    real = doctor.version

    def version(name):
        if name in ("ale-py", "mujoco"):
            raise doctor.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor, "version", version)
    findings = {finding.detail: finding for finding in doctor._packages()}
    assert findings["ale-py is not installed"].status == "warn"
    assert findings["ale-py is not installed"].fix == "pip install ale-py"
    assert findings["mujoco is not installed"].status == "FAIL"


@pytest.mark.parametrize(
    ("device", "host", "status", "words"),
    [
        (80 * GB, 64 * GB, "ok", "fits on the GPU"),
        (8 * GB, 64 * GB, "ok", "fits in main memory"),
        (0, 64 * GB, "ok", "fits in main memory"),
        (0, 8 * GB, "warn", "needs 10.6 GB for replay, for each seed"),
    ],
)
def test_memory_is_judged_against_a_default_run(device, host, status, words):
    finding = doctor._memory(device, host)
    assert finding.status == status
    assert words in finding.detail


def test_too_little_memory_says_how_many_steps_fit():
    # 8 GB less 2 GB of working memory, at 21 kB a step.
    assert "at most 282k agent steps" in doctor._memory(0, 8 * GB).fix


def test_a_check_that_breaks_is_a_finding_and_not_a_crash(monkeypatch):
    def broken():
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(doctor, "_cuda", broken)
    monkeypatch.setattr(doctor, "_opengl", lambda: doctor.Finding("OpenGL", "ok", ""))
    console = Console(record=True, width=200)
    assert not doctor.doctor(console)
    assert "OSError: libcudart.so.13" in console.export_text()
