"""The folder of one run: what lies where, and who may write there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from ogspr._version import __version__
from ogspr.errors import InUse, UserError
from ogspr.records.files import (
    check_contents,
    make_folder,
    open_to_change,
    read_file,
    remove_unfinished,
    write_atomic,
)
from ogspr.types import EnvSpec


def folder_name(task: str) -> str:
    """A task as the name of the folder that holds its runs."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in task)


class RunFolder:
    """Names of everything a run leaves on disk.

    A run exists once its config.json does: that is written when all else is in place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.manifest = path / "manifest.json"
        self.checkpoints = path / "checkpoints"
        self.replay = path / "replay"
        self.policies = path / "policies"
        self.videos = path / "videos"
        self.tensorboard = path / "tensorboard"
        self.train_table = path / "train.csv"
        self.episode_table = path / "episodes.csv"
        self.evaluation_table = path / "eval.csv"
        self.system_table = path / "system.csv"
        self._parts = (self.checkpoints, self.replay, self.policies, self.tensorboard)
        self._locked = contextlib.ExitStack()

    @property
    def exists(self) -> bool:
        return self.config.exists()

    def require(self) -> None:
        """A UserError if there is no run; suggests one in a subfolder."""
        if self.exists:
            return
        below = sorted(config.parent for config in self.path.glob("*/config.json"))
        advice = f"; did you mean {below[0]}?" if below else ". Pass the folder of a run."
        raise UserError(f"{self.path} is not a run folder (no config.json){advice}")

    @property
    def has_results(self) -> bool:
        """Whether anything here would be lost with a new start."""
        tables = (self.train_table, self.episode_table, self.evaluation_table)
        later = [path for path in self.checkpoints.glob("*-step-*") if not path.name.endswith("-step-0")]
        kept = [*later, *self.policies.glob("*.safetensors")]
        return bool(kept) or any(path.exists() and path.stat().st_size > 0 for path in tables)

    def lock(self) -> None:
        """Makes this process the only one that writes here; the system forgets it when the process ends.

        Refuses a folder that could lead this process to write elsewhere, as one from someone else might.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with contextlib.ExitStack() as locked:
            locked.callback(_remove_empty, made)
            make_folder(self.path)
            check_contents(self.path)
            for part in self._parts:
                check_contents(part, deep=True)
            locked.enter_context(_lock(self.path / "lock"))
            self._locked = locked.pop_all()

    def unlock(self) -> None:
        """Releases the lock; removes a folder in which nothing was started."""
        self._locked.close()

    def clean_up(self) -> None:
        """Removes what an earlier process did not finish."""
        for folder in (self.path, *self._parts):
            remove_unfinished(folder)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Whoever makes the file removes it; one that was there stays as it is."""
    made = not path.exists()
    file = open_to_change(path)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
                raise BlockingIOError  # another one that ends at this moment has removed it
        except BlockingIOError:
            raise InUse(
                f"{path.parent} is in use by {_holder(file)}; wait for it, end it, or choose another --out."
            ) from None
        except OSError as error:
            raise UserError(
                f"{path} cannot be locked: {error.strerror}; choose an --out on a file system that can."
            ) from None
        if made:
            with contextlib.suppress(OSError):  # for people only: a full disk is no reason to refuse a lock
                os.write(file.fileno(), f"{platform.node()} {os.getpid()}\n".encode())
        try:
            yield
        finally:
            if made:
                path.unlink(missing_ok=True)


def _holder(file: IO[bytes]) -> str:
    """The process that has locked a file: where the system tells, else as it wrote there itself."""
    found = os.fstat(file.fileno())
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4294 fe:00:2277380 0 EOF
            if words[1] == "FLOCK" and words[5] == place and int(words[4]) > 0:  # 0: in another container
                return f"process {words[4]}"
    file.seek(0)
    written = re.fullmatch(rb"([\w.-]{1,255}) (\d+)\n", file.read(300))
    if written and written[1].decode() != platform.node():
        return f"another machine (process {written[2].decode()} on {written[1].decode()}, or a later one)"
    return "another process"


def _remove_empty(folders: Sequence[Path]) -> None:
    """If nothing has been put there."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def read_json(path: Path) -> dict[str, Any]:
    """An object in a JSON file; a UserError where it is none."""
    try:
        content = json.loads(read_file(path).decode())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it contains no named values.")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """The whole file or none of it."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


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
    """The manifest of a resumed run: the original one; each later start is added to `resumed`."""
    before = read_json(path) if path.exists() else content
    earlier = before.get("resumed", [])
    if not isinstance(earlier, list):
        raise UserError(f"{path} is damaged: resumed is {earlier!r}; restore the file.")
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
