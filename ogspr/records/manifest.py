"""What has to be known about a result to read it years later."""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ogspr._version import __version__
from ogspr.errors import UserError
from ogspr.records.run import read_json, write_json
from ogspr.types import EnvSpec

_LIBRARIES = ("ale-py", "dm_control", "gymnasium", "mujoco", "numpy", "opencv-python-headless")
_LEARNING_LIBRARIES = ("safetensors", "torch", "triton")


def manifest(spec: EnvSpec, **settings: Any) -> dict[str, Any]:
    """Environment, protocol, versions and the command line, as JSON values."""
    return {
        "ogspr": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {
            name: found for name in (*_LIBRARIES, *_LEARNING_LIBRARIES) if (found := _version(name))
        },
        "driver": _driver(),
        "command": shlex.join(["ogspr", *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": asdict(spec),
        "settings": settings,
    }


def code_version() -> str:
    """This package and which state of it, in two words."""
    commit = _commit()
    return f"ogspr {short_commit(commit) if commit else __version__}"


def short_commit(commit: str) -> str:
    """As a manifest names it, abbreviated; with a plus sign where there were changes."""
    head, _, changes = commit.partition(" ")
    return f"{head[:7]}{'+' if changes else ''}"


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    write_json(folder / "manifest.json", content)


def continued_manifest(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Of a run that goes on: it keeps what it began with; each later start is added to `resumed`."""
    before = read_json(path) if path.exists() else content
    earlier = before.get("resumed", [])
    if not isinstance(earlier, list):
        raise UserError(f"{path} is damaged: resumed is {earlier!r}; put the file back.")
    later = {name: content[name] for name in content if name != "environment"}
    return before | {"resumed": [*earlier, later]}


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Of the checkout this package is used from; None where it is installed from a wheel."""
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    try:
        head = _output(git, "-C", str(root), "rev-parse", "HEAD")
        changed = _output(git, "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head} with changes" if changed else head


def _driver() -> str | None:
    """Of the GPU; None where there is none."""
    path = Path("/proc/driver/nvidia/version")
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
