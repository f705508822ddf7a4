"""`ogspr doctor`: is this machine ready, and if not, what to do about it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from rich.console import Console
from rich.text import Text

from ogspr.agents.methods import unusable_methods
from ogspr.envs import EnvOptions, dmc, gl
from ogspr.errors import UserError
from ogspr.memory import free_host_bytes

_GB = 10**9
_REQUIRED = ("torch", "numpy", "mujoco", "dm_control", "gymnasium", "opencv-python-headless")
_OPTIONAL = ("ale-py", "imageio", "imageio-ffmpeg")  # for Atari, for videos
_SPEED_TASK = "cheetah-run"
_SPEED_SECONDS = 1.0

# The default run is the paper's: 500k agent steps of 84x84 colour frames, each frame kept once.
_RUN_AGENT_STEPS = 500_000
_RUN_STEP_BYTES = 21_220  # as `ogspr train` says for cheetah-run
_RUN_WORKING_BYTES = 2 * _GB  # networks, optimisers, activations, library code

Status = Literal["ok", "warn", "FAIL"]
_COLOURS: dict[Status, str] = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    status: Status
    detail: str
    fix: str = ""


def doctor(console: Console) -> bool:
    """Prints every finding as it is made; False if something that is needed does not work."""
    healthy = True
    for finding in examine():
        label = f"{finding.status:<6}"
        console.print(
            Text.assemble((label, _COLOURS[finding.status]), f"{finding.subject:<9}{finding.detail}")
        )
        for number, line in enumerate(finding.fix.splitlines()):
            console.print(f"{'':<6}{'fix:' if number == 0 else '':<9}{line.strip()}")
        healthy &= finding.status != "FAIL"
    return healthy


def examine() -> Iterator[Finding]:
    yield _system()
    yield from _packages()
    for problem in unusable_methods().values():
        yield Finding("methods", "warn", problem)
    for subject, check in (("OpenGL", _opengl), ("CUDA", _cuda), ("memory", _memory_here)):
        # Checks must not crash: whatever one runs into is its finding.
        try:
            yield check()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            yield Finding(subject, "FAIL", reason, "reinstall the packages above that are wrong or missing")


def _system() -> Finding:
    detail = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}"
    return Finding("system", "ok", detail)


def _packages() -> Iterator[Finding]:
    present, missing = {}, []
    for name in (*_REQUIRED, *_OPTIONAL):
        try:
            present[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    yield Finding("packages", "ok", ", ".join(f"{name} {number}" for name, number in present.items()))
    for name in missing:
        fix = dmc.INSTALL_COMMAND if name == "dm_control" else f"pip install {name}"
        status: Status = "warn" if name in _OPTIONAL else "FAIL"
        yield Finding("packages", status, f"{name} is not installed", fix)


def _opengl() -> Finding:
    try:
        backend = gl.activate()
    except UserError as error:
        reason, _, fix = str(error).partition("\n")
        return Finding("OpenGL", "FAIL", reason, fix.strip())
    where = backend.name if backend.device is None else f"{backend.name} device {backend.device}"
    detail = f"{backend.renderer} ({where}), {_frames_per_second():.0f} frames a second of {_SPEED_TASK}"
    if backend.software and gl.nvidia_gpu_present():
        return Finding(
            "OpenGL",
            "warn",
            f"{detail}: software, although there is an NVIDIA GPU",
            "install libegl1 and libopengl0 and the driver's EGL library (libnvidia-gl); "
            "__EGL_VENDOR_LIBRARY_DIRS must name the folder of 10_nvidia.json",
        )
    return Finding("OpenGL", "ok", detail)


def _frames_per_second() -> float:
    source = dmc.make_source(_SPEED_TASK, 0, EnvOptions())
    source.reset()
    frames, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < _SPEED_SECONDS:
        source.draw()
        frames += 1
    source.close()
    return frames / seconds


def _cuda() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("CUDA", "ok", f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    if gl.nvidia_gpu_present():
        return Finding(
            "CUDA",
            "warn",
            f"there is an NVIDIA GPU, but torch {torch.__version__} cannot use it",
            "install a CUDA build of torch that fits the driver (nvidia-smi shows its CUDA version)",
        )
    return Finding("CUDA", "ok", "no GPU: small runs work, the paper's take days")


def _free_device_bytes() -> int:
    import torch

    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0


def _memory_here() -> Finding:
    return _memory(_free_device_bytes(), free_host_bytes())


def _memory(device_bytes: int, host_bytes: int) -> Finding:
    """Where the replay of a default run finds room: on the GPU, in main memory, or nowhere."""
    replay = _RUN_AGENT_STEPS * _RUN_STEP_BYTES
    have = f"free: {host_bytes / _GB:.1f} GB"
    if device_bytes:
        have += f", on the GPU {device_bytes / _GB:.1f} GB"
    need = f"a {_RUN_AGENT_STEPS // 1000}k-step run needs {replay / _GB:.1f} GB for replay, for each seed"
    if device_bytes >= replay + _RUN_WORKING_BYTES:
        return Finding("memory", "ok", f"{have}; {need}: it fits on the GPU")
    if host_bytes >= replay + _RUN_WORKING_BYTES:
        return Finding("memory", "ok", f"{have}; {need}: it fits in main memory")
    steps = max(0, max(device_bytes, host_bytes) - _RUN_WORKING_BYTES) // _RUN_STEP_BYTES
    return Finding(
        "memory", "warn", f"{have}; {need}", f"run at most {steps // 1000}k agent steps here, or free memory"
    )
