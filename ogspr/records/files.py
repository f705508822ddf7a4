"""Files for a user: written atomically, never through a link; failures become errors for the user.

A place that a user names may lie behind links. What lies in a run or in a report may not be one: it may come
from someone else, and writing through it would reach any file of the user.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from uuid import uuid4

from ogspr.errors import CannotWrite, UserError

# Of the file system, not of the place that was chosen: the same may work later, or on another machine.
_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)
_UNFINISHED = re.compile(r".+\.unfinished-[0-9a-f]{8}")
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


@contextlib.contextmanager
def user_io_errors(path: Path) -> Iterator[None]:
    """Turns a failure of the file system into one line that names the place."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        kind = CannotWrite if error.errno in _TROUBLE else UserError
        raise kind(f"cannot write {path}: {reason}; choose another path or fix this one.") from None


@dataclass(frozen=True)
class FileStamp:
    """What a file must look like to be the one that was written."""

    name: str
    size: int
    sha256: str


class NewFiles:
    """Files that get their names together, when all of them are on the disk; nothing has changed before.

    with NewFiles() as files:
        write(files.begin(path))
    """

    def __init__(self) -> None:
        self._unfinished: dict[Path, Path] = {}  # the name a file will have, and the one it has until then
        self._replaced: list[Path] = []

    def __enter__(self) -> NewFiles:
        return self

    def begin(self, path: Path) -> Path:
        """Where to write the content of `path`: an empty file with an unpredictable name."""
        check_file(path)
        self._unfinished[path] = unfinished_name(path)
        with user_io_errors(path):
            self._unfinished[path].open("xb").close()
        return self._unfinished[path]

    def instead_of(self, path: Path) -> None:
        """A file that goes when the new ones have their names."""
        self._replaced.append(path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where anything has failed, nothing is left of any of them."""
        try:
            if kind is None:
                for path, unfinished in self._unfinished.items():
                    with user_io_errors(path):
                        unfinished.replace(path)
                for folder in {path.parent for path in self._unfinished}:
                    with user_io_errors(folder):
                        fsync_folder(folder)
                for path in self._replaced:
                    remove(path)
        finally:
            for unfinished in self._unfinished.values():
                remove(unfinished)


def write_atomic(path: Path, data: bytes) -> FileStamp:
    """Writes a file whose name never is that of a part: it appears when all is on the disk."""
    make_folder(path.parent)
    with NewFiles() as files, files.begin(path).open("wb") as file, user_io_errors(path):
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileStamp(path.name, len(data), hashlib.sha256(data).hexdigest())


def unfinished_name(path: Path, ending: str = "") -> Path:
    """For what shall be `path`; `ending`: where others go by it."""
    return path.with_name(f"{path.name}.unfinished-{uuid4().hex[:8]}{ending}")


def remove_unfinished(folder: Path) -> None:
    """What processes that were killed have left in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _UNFINISHED.fullmatch(path.name):
            remove(path)


def remove(path: Path) -> None:
    """A file, or a folder with what is in it; of a link, the link. As far as that is possible."""
    with contextlib.suppress(OSError):
        if _kind(path) == "folder":
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def cleanup_on_error(unfinished: Path) -> Iterator[None]:
    """Where what is written to a file inside does not get its true name there, nothing is left of it."""
    try:
        yield
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_file(path: Path) -> bytes:
    """OSError where it cannot be read, also for what would never end: pipes and devices."""
    with open_to_read(path) as file:
        return file.read()


def open_to_read(path: Path) -> io.BufferedReader:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return path.open("rb")


def open_to_change(path: Path) -> io.BufferedRandom:
    """A file that is there, or a new one, to be written in place: nothing that has another name, too."""
    check_own(path)
    with user_io_errors(path):
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")


def check_own(path: Path) -> None:
    """Refuses what must not be written in place; a file that is not there yet is none of it."""
    check_file(path)
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:
            raise UserError(
                f"cannot write {path}: it is the same file as another one (a hard link); "
                "replace it with a copy."
            )


def check_file(path: Path) -> None:
    """Refuses a name that something else than a file has."""
    with user_io_errors(path):
        kind = _kind(path)
    if kind not in (None, "file"):
        raise UserError(f"cannot write {path}: it is a {kind}; choose another name, or move it away.")


def check_contents(folder: Path, *, deep: bool = False) -> None:
    """Refuses a folder of a run in which something is neither file nor folder; `deep`: at any depth."""
    if deep and (kind := _kind(folder)) not in (None, "folder"):
        raise UserError(f"{folder} is a {kind}; a run needs a folder there.")
    with _reading(folder):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            kind = _kind(path)
            if kind not in (None, "file", "folder"):
                raise UserError(f"{path} is a {kind}; a run's folder must contain its files itself.")
            if deep and kind == "folder":
                check_contents(path, deep=True)


def stamp_of(path: Path) -> FileStamp:
    """The stamp of a file as it is; OSError where it cannot be read."""
    with open_to_read(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileStamp(path.name, path.stat().st_size, digest)


def fsync_folder(folder: Path) -> None:
    """Waits until the names in a folder are safe, as its files are already."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """One that a user names: it may be a link to one."""
    if path.is_file():
        raise UserError(f"cannot write {path}: it is a file, where a folder is needed; choose another place.")
    with user_io_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def make_inner_folder(path: Path) -> None:
    """One that belongs to a run or a report: a link to one is refused."""
    if path.is_symlink():
        raise UserError(f"cannot write to {path}: it is a link; replace it with a folder.")
    make_folder(path)


def check_default_place(path: Path, advice: str) -> None:
    """Refuses a place below the current folder that lies behind a link, where the user has named no place.

    Who works in a folder of others need not know what is linked there. `advice`: how to name it.
    """
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            raise UserError(f"{part} is a link; say {advice} if you mean what it leads to.")


def check_writable(path: Path) -> None:
    """Finds out before the work that its result could not be written. Leaves all files as they are."""
    make_folder(path.parent)
    check_file(path)
    with user_io_errors(path):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        TemporaryFile(dir=path.parent).close()


def check_csv(path: Path) -> None:
    """The same for a table of results."""
    if path.suffix != ".csv":
        raise UserError(f"cannot write {path}: the results file must end in .csv.")
    check_writable(path)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomic(path, text.getvalue().encode())


def _kind(path: Path) -> str | None:
    """What has a name, links not followed; None: nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode), "device")
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from None
