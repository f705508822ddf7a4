"""Checkpoints of a run: folders that are complete or not there, found damaged rather than believed.

checkpoints/000012-step-30000/   manifest.json   what the checkpoint consists of, with sha256
                                 state.safetensors
replay/                          pieces of replay, each written once and named in every later manifest
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ogspr._version import __version__
from ogspr.errors import UserError
from ogspr.records.files import FileStamp, make_folder, reach_disk, stamp_of, writing
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
_UNFINISHED = ".unfinished"


class _Damaged(Exception):
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """One that was found whole."""

    path: Path
    agent_steps: int
    pieces: tuple[FileStamp, ...]  # of replay, in order

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = load_tree(self.path / _STATE, _KIND)
        return state


class Checkpoints:
    """Those of one run; the newest few are kept."""

    def __init__(self, folder: RunFolder, keep: int) -> None:
        self._folder = folder.checkpoints
        self._replay = folder.replay
        self._keep = keep

    def save(self, agent_steps: int, state: Saved, pieces: Sequence[FileStamp]) -> None:
        """Writes a checkpoint; earlier ones are touched only after it is safe."""
        sequence = max((_sequence(path) for path in self._all()), default=0) + 1
        path = self._folder / f"{sequence:06d}-step-{agent_steps}"
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            make_folder(unfinished)
            stamp = save_tree(unfinished / _STATE, state, _KIND)
            content = {
                "format": FORMAT,
                "ogspr": __version__,
                "agent_steps": agent_steps,
                "state": asdict(stamp),
                "replay": [asdict(piece) for piece in pieces],
            }
            write_json(unfinished / _MANIFEST, content)
            with writing(path):
                reach_disk(unfinished)
                unfinished.rename(path)
                reach_disk(self._folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        write_json(self._folder / _NEWEST, {"name": path.name})
        self._remove_old()

    def newest(self, report: Callable[[str], None]) -> Checkpoint:
        """The newest that is whole; says what is wrong with newer ones. A UserError where there is none."""
        checkpoint, damaged = self._search(report, self._replay, "start a new run with another --out")
        for useless in damaged:  # so that they are not counted among those to keep
            useless.rename(useless.with_name(f"damaged-{useless.name}"))
        return checkpoint

    def newest_to_read(self, report: Callable[[str], None], *, with_replay: bool = False) -> Checkpoint:
        """The newest whose state is whole, for whoever only looks at it: nothing is renamed.

        Its replay may be damaged or gone, unless it is asked for: to see what a run has learned takes none.
        """
        return self._search(report, self._replay if with_replay else None, "choose another run")[0]

    def _search(
        self, report: Callable[[str], None], replay: Path | None, advice: str
    ) -> tuple[Checkpoint, list[Path]]:
        """The newest that can be used, and those after it; `advice`: what to do where there is none."""
        self._report_missing(report)
        found = sorted(self._all(), key=_sequence, reverse=True)
        damaged: list[Path] = []
        for path in found:
            try:
                return _verified(path, replay), damaged
            except _Damaged as damage:
                report(f"checkpoint {path} cannot be used: {damage}; trying the one before")
                damaged.append(path)
        where = self._folder
        none_usable = f"none of {len(found)} checkpoints in {where} can be used"
        tried = none_usable if found else f"no checkpoint is in {where}"
        raise UserError(f"{tried}; put a whole one back, or {advice}.")

    def clean_up(self) -> None:
        """Removes what an earlier process did not finish."""
        for path in self._folder.glob(f"*-step-*{_UNFINISHED}"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (*self._folder.glob(f"*{_UNFINISHED}"), *self._replay.glob(f"*{_UNFINISHED}")):
            path.unlink()

    def _report_missing(self, report: Callable[[str], None]) -> None:
        note = self._folder / _NEWEST
        if note.exists():
            with contextlib.suppress(UserError):  # only a hint: the folders themselves are checked
                name = read_json(note).get("name")
                if isinstance(name, str) and _NAME.fullmatch(name) and not (self._folder / name).exists():
                    report(f"checkpoint {self._folder / name} is missing; looking for an earlier one")

    def _all(self) -> list[Path]:
        return [path for path in self._folder.glob("*-step-*") if _NAME.fullmatch(path.name)]

    def _remove_old(self) -> None:
        kept = sorted(self._all(), key=_sequence)[-self._keep :]
        for path in self._all():
            if path not in kept:
                unfinished = path.with_name(
                    path.name + _UNFINISHED
                )  # so that no half of it is taken for whole
                with writing(path):
                    path.rename(unfinished)
                shutil.rmtree(unfinished, ignore_errors=True)
        self._remove_pieces_nobody_needs(kept)

    def _remove_pieces_nobody_needs(self, kept: Sequence[Path]) -> None:
        needed = set()
        for path in kept:
            try:
                needed |= {piece["name"] for piece in read_json(path / _MANIFEST)["replay"]}
            except (UserError, KeyError, TypeError):
                return  # whatever it needs stays
        for piece in self._replay.glob("*.safetensors"):
            if piece.name not in needed:
                piece.unlink(missing_ok=True)


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
    return Checkpoint(path, agent_steps, pieces)


def _check(folder: Path, stamp: FileStamp, allowed: re.Pattern[str]) -> None:
    """Names in a manifest never lead out of the folder."""
    if not isinstance(stamp.name, str) or not allowed.fullmatch(stamp.name):
        raise _Damaged(f"its manifest names {stamp.name!r}, which is no file of a checkpoint")
    path = folder / stamp.name
    try:
        found = stamp_of(path)
    except OSError as error:
        raise _Damaged(f"{path}: {error.strerror}") from None
    if found.size != stamp.size:
        raise _Damaged(f"{path} has {found.size} bytes instead of {stamp.size}")
    if found != stamp:
        raise _Damaged(f"{path} is not what was written (sha256 differs)")


def _sequence(path: Path) -> int:
    return int(path.name[:6])
