"""Writing files for a user: what goes wrong there is told, not thrown."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from ogspr.errors import UserError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure of the file system into one line that names the place."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write {path}: {reason}; choose another place or free this one.") from None


@dataclass(frozen=True)
class FileStamp:
    """What a file must look like to be the one that was written."""

    name: str
    size: int
    sha256: str


def written_whole(path: Path, data: bytes) -> FileStamp:
    """Writes a file whose name never is that of a part: it appears when all is on the disk."""
    make_folder(path.parent)
    unfinished = path.with_name(path.name + ".unfinished")
    with writing(path), removed_on_failure(unfinished):
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        reach_disk(path.parent)
    return FileStamp(path.name, len(data), hashlib.sha256(data).hexdigest())


@contextlib.contextmanager
def removed_on_failure(unfinished: Path) -> Iterator[None]:
    """Where what is written to a file inside does not get its true name there, nothing is left of it."""
    try:
        yield
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def stamp_of(path: Path) -> FileStamp:
    """The stamp of a file as it is; OSError where it cannot be read."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileStamp(path.name, path.stat().st_size, digest)


def reach_disk(folder: Path) -> None:
    """Waits until the names in a folder are safe, as its files are already."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    if path.is_file():
        raise UserError(f"cannot write {path}: it is a file, where a folder is needed; choose another place.")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def check_writable(path: Path) -> None:
    """Finds out before the work that its result could not be written. Leaves all files as they are."""
    make_folder(path.parent)
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; choose another name.")
    with writing(path):
        if not path.exists():
            TemporaryFile(dir=path.parent).close()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_csv(path: Path) -> None:
    """The same for a table of results."""
    if path.suffix != ".csv":
        raise UserError(f"cannot write {path}: the results file must end in .csv.")
    check_writable(path)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    make_folder(path.parent)
    with writing(path), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
