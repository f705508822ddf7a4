"""The folder of one run: what lies where, and who may write there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from ogspr.errors import UserError
from ogspr.records.files import make_folder, writing, written_whole


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
        self._lock: int | None = None
        self._made: list[Path] = []  # folders that were not there before

    @property
    def exists(self) -> bool:
        return self.config.exists()

    def require(self) -> None:
        """A UserError where there is no run; names one that lies below."""
        if self.exists:
            return
        below = sorted(config.parent for config in self.path.glob("*/config.json"))
        advice = f"did you mean {below[0]}?" if below else "give the folder of a run."
        raise UserError(f"{self.path} is no run: it has no config.json; {advice}")

    @property
    def has_results(self) -> bool:
        """Whether anything here would be lost with a new start."""
        tables = (self.train_table, self.episode_table, self.evaluation_table)
        later = [path for path in self.checkpoints.glob("*-step-*") if not path.name.endswith("-step-0")]
        return bool(later) or any(path.exists() and path.stat().st_size > 0 for path in tables)

    def lock(self) -> None:
        """Makes this process the only one that writes here; the system forgets it when the process ends."""
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        make_folder(self.path)
        self._refuse_links()
        path = self.path / "lock"
        with writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise UserError(
                f"{self.path} is in use by process {owner}; wait for it, end it, or choose another --out."
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise UserError(
                f"{path} cannot be locked: {error.strerror}; choose an --out on a file system that can."
            ) from None
        with writing(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        self._lock = descriptor

    def unlock(self) -> None:
        """Lets others write; a folder in which nothing has begun goes again."""
        if self._lock is None:
            return
        if [path.name for path in self.path.iterdir()] == ["lock"]:
            (self.path / "lock").unlink()
            with contextlib.suppress(OSError):  # somebody else has put something there
                for folder in self._made:
                    folder.rmdir()
        os.close(self._lock)
        self._lock = None

    def _refuse_links(self) -> None:
        """A run that came from elsewhere must not lead this process to write outside of it."""
        for path in self.path.iterdir():
            if path.is_symlink():
                raise UserError(f"{path} is a link; a run's folder must hold its files itself.")


def read_json(path: Path) -> dict[str, Any]:
    """An object in a JSON file; a UserError where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds no named values.")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """The whole file or none of it."""
    written_whole(path, (json.dumps(content, indent=2) + "\n").encode())
