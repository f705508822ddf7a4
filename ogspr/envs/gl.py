"""Which OpenGL renders the MuJoCo images: found out once, safely, before MuJoCo is imported.

MuJoCo and dm_control read MUJOCO_GL when they are imported, and a broken driver may end the whole
process instead of raising. So every candidate is tried in a subprocess (`gl_probe`), and the first
that really renders an image is written to the environment, where this process and its workers find it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ogspr.envs import gl_probe
from ogspr.errors import UserError, unknown

BACKENDS = ("egl", "osmesa", "glfw")  # in the order in which they are tried
_DISABLED = ("disable", "disabled", "off", "false", "0")  # MuJoCo's words for "no rendering"
_DECISION = "OGSPR_GL_DECISION"  # how workers learn what their parent found out
_USERS_CHOICES = ("MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID")
_PROBE_SECONDS = 120
_REASON_LENGTH = 90
_SOFTWARE_RENDERERS = ("llvmpipe", "softpipe", "swrast", "software")

DEBIAN_PACKAGES = ("libegl1", "libegl-mesa0", "libgl1", "libgl1-mesa-dri", "libopengl0")
INSTALL_HELP = f"""\
  Debian/Ubuntu:  sudo apt-get install -y {" ".join(DEBIAN_PACKAGES)}
  Fedora:         sudo dnf install -y mesa-libEGL mesa-libGL mesa-dri-drivers libglvnd-opengl
  conda:          conda install -c conda-forge libegl libgl libopengl mesalib"""


@dataclass(frozen=True)
class Backend:
    """An OpenGL that was seen drawing."""

    name: str  # the value of MUJOCO_GL
    device: int | None  # the number of the EGL device, where there are such
    renderer: str  # the driver's own name for itself

    @property
    def software(self) -> bool:
        return any(word in self.renderer.lower() for word in _SOFTWARE_RENDERERS)


@dataclass(frozen=True)
class _Candidate:
    name: str
    device: int | None = None

    def environment(self) -> dict[str, str]:
        variables = {"MUJOCO_GL": self.name}
        if self.name in ("egl", "osmesa"):
            variables["PYOPENGL_PLATFORM"] = self.name
        if self.device is not None:
            variables["MUJOCO_EGL_DEVICE_ID"] = str(self.device)
        return variables

    def __str__(self) -> str:
        return self.name if self.device is None else f"{self.name} device {self.device}"


def activate(cuda_device: int = 0) -> Backend:
    """Chooses the backend and sets it for this process and its children.

    `cuda_device` counts as CUDA does in this process: EGL reports the numbers that CUDA_VISIBLE_DEVICES
    leaves visible. MUJOCO_GL and MUJOCO_EGL_DEVICE_ID are respected where the user has set them.
    """
    if (already := decided()) is not None:
        return already
    if "mujoco" in sys.modules and "MUJOCO_GL" not in os.environ:
        raise UserError(
            "mujoco was imported before a GL backend could be chosen; "
            "set MUJOCO_GL=egl, or make the environment before importing mujoco."
        )
    backend = find(cuda_device)
    os.environ.update(_Candidate(backend.name, backend.device).environment())
    os.environ[_DECISION] = json.dumps(asdict(backend))
    return backend


def decided() -> Backend | None:
    """What `activate` chose, here or in the parent process; None where nothing was drawn yet."""
    decision = os.environ.get(_DECISION)
    return Backend(**json.loads(decision)) if decision else None


@cache
def find(cuda_device: int = 0) -> Backend:
    """The first candidate that draws; changes nothing. UserError with install lines if none does."""
    failures = []
    for candidate in _candidates(cuda_device):
        found, reason = _probe(candidate)
        if found is not None:
            return found
        failures.append(f"{candidate}: {reason}")
    tried = "; ".join(failures)
    chosen = [f"{name}={os.environ[name]}" for name in _USERS_CHOICES if os.environ.get(name)]
    if chosen:
        raise UserError(f"{' '.join(chosen)} does not work here ({tried}); unset it to let ogspr choose one.")
    raise UserError(f"no working OpenGL was found ({tried}). Install one, then try again:\n{INSTALL_HELP}")


def nvidia_gpu_present() -> bool:
    """Whether an NVIDIA driver runs here, found without loading CUDA."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()


def _candidates(cuda_device: int) -> Iterator[_Candidate]:
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted in _DISABLED:
        raise UserError(f"MUJOCO_GL={wanted} switches rendering off; unset it to train from pixels.")
    if wanted and wanted not in BACKENDS:
        raise unknown("GL backend MUJOCO_GL", wanted, BACKENDS, hint="Unset it to let ogspr choose one.")
    for name in (wanted,) if wanted else BACKENDS:
        if name == "egl":
            yield from (_Candidate("egl", device) for device in _egl_devices(cuda_device))
        else:
            yield _Candidate(name)


def _egl_devices(cuda_device: int) -> Sequence[int | None]:
    """EGL device numbers, the wanted GPU first, other GPUs next, software last.

    None stands for EGL's own choice, where the devices cannot be listed.
    """
    chosen = os.environ.get("MUJOCO_EGL_DEVICE_ID")
    if chosen is not None:
        if not chosen.isdigit():
            raise UserError(f"MUJOCO_EGL_DEVICE_ID must be an integer of at least 0, got '{chosen}'.")
        return [int(chosen)]
    answer, _ = _run_probe(["list"], {"PYOPENGL_PLATFORM": "egl"})
    devices: list[dict[str, Any]] = answer["devices"] if answer else []

    def preference(number: int) -> tuple[bool, bool, int]:
        device = devices[number]
        return (device["cuda"] != cuda_device, device["software"], number)

    ranked = sorted(range(len(devices)), key=preference)
    return ranked or [None]


def _reason(stderr: str) -> str:
    """The last line of a traceback, in words that mean something to a user."""
    line = (stderr.strip().splitlines() or ["failed"])[-1]
    if "'NoneType' object has no attribute" in line:  # what PyOpenGL says of a library it did not find
        return "library not installed"
    return line if len(line) <= _REASON_LENGTH else f"{line[:_REASON_LENGTH]}..."


def _probe(candidate: _Candidate) -> tuple[Backend | None, str]:
    answer, reason = _run_probe(["draw"], candidate.environment())
    if answer is None:
        return None, reason
    return Backend(candidate.name, candidate.device, answer["renderer"]), ""


def _run_probe(arguments: list[str], variables: dict[str, str]) -> tuple[dict[str, Any] | None, str]:
    """What the probe printed, or None and why: a crash of the driver ends the probe, not us."""
    # -P: neither the folder of the file nor the current one is a place to look for mujoco.
    command = [sys.executable, "-P", gl_probe.__file__, *arguments]
    try:
        done = subprocess.run(
            command,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {_PROBE_SECONDS} s"
    if done.returncode < 0:
        return None, f"killed by signal {-done.returncode}"
    if done.returncode > 0:
        return None, _reason(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer, ""
