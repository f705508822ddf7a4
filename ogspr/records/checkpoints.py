"""Checkpoints of a run: folders that are complete or not there, found damaged rather than believed.

checkpoints/000012-step-30000/   manifest.json   what the checkpoint consists of, with sha256
                                 state.safetensors
replay/                          pieces of replay, each written once and named in every later manifest
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ogspr._version import __version__
from ogspr.errors import UserError
from ogspr.records.files import (
    FileStamp,
    fsync_folder,
    make_inner_folder,
    read_file,
    remove,
    stamp_of,
    unfinished_name,
    user_io_errors,
)
from ogspr.records.run import RunFolder, read_json, write_json
from ogspr.records.tree import load_tree, save_tree
from ogspr.types import Saved

FORMAT = 1
_KIND = "ogspr-run-1"
_STATE = "state.safetensors"
_MANIFEST = "manifest.json"
_NEWEST = "newest.json"
_NAME = re.compile(r"(\d{6})-step-\d+")
_PIECE = re.compile(r"[0-9]+-[0-9]+\.safetensors")


class _Damaged(Exception):
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """One that was found whole."""

    path: Path
    agent_steps: int
    pieces: tuple[FileStamp, ...]  # of replay, in order
    has_replay: bool = True
    """Whether a run can continue from it; one that is finished may have dropped its replay."""
    finished: bool = False
    """Whether nothing was left to do for the run."""
    damaged: tuple[Path, ...] = ()  # newer ones, which are not whole

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = load_tree(self.path / _STATE, _KIND)
        return state


class Checkpoints:
    """Those of one run; the newest few are kept."""

    def __init__(self, folder: RunFolder, keep: int) -> None:
        self._folder = folder.checkpoints
        self._replay = folder.replay
        self._keep = keep

    def save(
        self, agent_steps: int, state: Saved, pieces: Sequence[FileStamp] | None, *, finished: bool = False
    ) -> None:
        """Writes a checkpoint; earlier ones are touched only after it is safe.

        Args:
            agent_steps: Of the run so far.
            state: All of it but what replay stores.
            pieces: What replay stores; None drops it, with earlier checkpoints, which need it.
            finished: Whether nothing is left to do.
        """
        sequence = max((_sequence(path) for path in self._all()), default=0) + 1
        path = self._folder / f"{sequence:06d}-step-{agent_steps}"
        make_inner_folder(self._folder)
        unfinished = unfinished_name(path)
        try:
            with user_io_errors(path):
                unfinished.mkdir()
            stamp = save_tree(unfinished / _STATE, state, _KIND)
            content = {
                "format": FORMAT,
                "ogspr": __version__,
                "agent_steps": agent_steps,
                "state": asdict(stamp),
                "replay": [asdict(piece) for piece in pieces or ()],
                "has_replay": pieces is not None,
                "finished": finished,
            }
            write_json(unfinished / _MANIFEST, content)
            with user_io_errors(path):
                fsync_folder(unfinished)
                unfinished.rename(path)
                fsync_folder(self._folder)
        except BaseException:
            remove(unfinished)
            raise
        write_json(self._folder / _NEWEST, {"name": path.name})
        self._remove_old(self._keep if pieces is not None else 1)

    def newest(self, report: Callable[[str], None]) -> Checkpoint:
        """The newest that is whole; says what is wrong with newer ones. A UserError where there is none."""
        return self._search(report, self._replay, "start a new run with another --out")

    def newest_to_read(self, report: Callable[[str], None], *, with_replay: bool = False) -> Checkpoint:
        """The newest whose state is whole, for whoever only looks at it.

        Its replay may be damaged or gone, unless it is asked for: to see what a run has learned takes none.
        """
        found = self._search(report, self._replay if with_replay else None, "choose another run")
        if with_replay and not found.has_replay:
            raise UserError(
                f"{self._folder.parent} is complete and dropped its replay; train with --keep.replay always."
            )
        return found

    def check_writable(self) -> None:
        """A UserError where no checkpoint could be saved; leaves everything as it is."""
        for folder in (self._folder, self._replay):
            if folder.exists():
                with user_io_errors(folder):
                    TemporaryFile(dir=folder).close()

    def put_aside(self, damaged: Sequence[Path], report: Callable[[str], None]) -> None:
        """So that they are not counted among those to keep; one that cannot be renamed does no other harm."""
        for path in damaged:
            aside = path.with_name(f"damaged-{path.name}")
            numbered = (aside.with_name(f"{aside.name}-{number}") for number in itertools.count(2))
            free = next(name for name in itertools.chain([aside], numbered) if not name.exists())
            try:
                path.rename(free)
            except OSError as error:
                report(f"checkpoint {path} cannot be moved aside: {error.strerror}")

    def _search(self, report: Callable[[str], None], replay: Path | None, advice: str) -> Checkpoint:
        """`replay`: where that must be whole, too; `advice`: what to do where no checkpoint can be used."""
        self._report_missing(report)
        found = sorted(self._all(), key=_sequence, reverse=True)
        damaged: list[Path] = []
        for path in found:
            try:
                return replace(_verified(path, replay), damaged=tuple(damaged))
            except _Damaged as damage:
                report(f"checkpoint {path} cannot be used: {damage}; trying the previous one")
                damaged.append(path)
        where = self._folder
        none_usable = f"none of {len(found)} checkpoints in {where} can be used"
        tried = none_usable if found else f"there is no checkpoint in {where}"
        raise UserError(f"{tried}; restore an intact one, or {advice}.")

    def _report_missing(self, report: Callable[[str], None]) -> None:
        note = self._folder / _NEWEST
        if note.exists():
            with contextlib.suppress(UserError):  # only a hint: the folders themselves are checked
                name = read_json(note).get("name")
                if isinstance(name, str) and _NAME.fullmatch(name) and not (self._folder / name).exists():
                    report(f"checkpoint {self._folder / name} is missing; looking for an earlier one")

    def _all(self) -> list[Path]:
        return [path for path in self._folder.glob("*-step-*") if _NAME.fullmatch(path.name)]

    def _remove_old(self, keep: int) -> None:
        kept = sorted(self._all(), key=_sequence)[-keep:]
        for path in self._all():
            if path not in kept:
                unfinished = unfinished_name(path)  # so that no half of it is taken for whole
                with user_io_errors(path):
                    path.rename(unfinished)
                remove(unfinished)
        self._remove_unused_pieces(kept)

    def _remove_unused_pieces(self, kept: Sequence[Path]) -> None:
        needed = set()
        for path in kept:
            try:
                needed |= {piece["name"] for piece in read_json(path / _MANIFEST)["replay"]}
            except (UserError, KeyError, TypeError):
                return  # whatever it needs stays
        for piece in self._replay.iterdir() if self._replay.is_dir() else ():
            if _PIECE.fullmatch(piece.name) and piece.name not in needed:
                remove(piece)


def _verified(path: Path, replay: Path | None) -> Checkpoint:
    """The checkpoint in a folder; `replay`: where its pieces of replay are looked for, None: nowhere."""
    try:
        content = read_json(path / _MANIFEST)
    except UserError as error:
        raise _Damaged(str(error)) from None
    version = content.get("format")
    if type(version) is not int:
        raise _Damaged("it was not written by ogspr")
    if version > FORMAT:
        raise UserError(
            f"checkpoint {path} has format {version}, written by ogspr {content.get('ogspr')}; "
            f"this version reads up to {FORMAT}. Use a newer ogspr."
        )
    try:
        agent_steps = int(content["agent_steps"])
        state = FileStamp(**content["state"])
        pieces = tuple(FileStamp(**piece) for piece in content["replay"])
    except (KeyError, TypeError, ValueError) as error:
        raise _Damaged(f"its manifest is damaged ({error!r})") from None
    _check(path, state, re.compile(re.escape(_STATE)))
    if replay is not None:
        for piece in pieces:
            _check(replay, piece, _PIECE)
    return Checkpoint(
        path,
        agent_steps,
        pieces,
        has_replay=content.get("has_replay") is not False,
        finished=content.get("finished") is True,
    )


def _check(folder: Path, stamp: FileStamp, allowed: re.Pattern[str]) -> None:
    """Names in a manifest never lead out of the folder."""
    if not isinstance(stamp.name, str) or not allowed.fullmatch(stamp.name):
        raise _Damaged(f"its manifest names {stamp.name!r}, which is not a checkpoint file")
    path = folder / stamp.name
    try:
        found = stamp_of(path)
    except OSError as error:
        raise _Damaged(f"{path}: {error.strerror}") from None
    if found.size != stamp.size:
        raise _Damaged(f"{path} has {found.size} bytes instead of {stamp.size}")
    if found != stamp:
        raise _Damaged(f"{path} has changed since it was written (sha256 differs)")


def _sequence(path: Path) -> int:
    return int(path.name[:6])


@dataclass(frozen=True)
class RunProgress:
    """How far the checkpoints of a run are."""

    agent_steps: int = 0
    finished: bool = False


def progress_of(run: Path) -> RunProgress:
    """Of the newest checkpoint, by its manifest alone; nothing is verified, and nothing is an error."""
    folder = run / "checkpoints"
    try:
        name = json.loads(read_file(folder / _NEWEST))["name"]
        if not _NAME.fullmatch(name):
            return RunProgress()
        content = json.loads(read_file(folder / name / _MANIFEST))
        return RunProgress(int(content["agent_steps"]), content.get("finished") is True)
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return RunProgress()
