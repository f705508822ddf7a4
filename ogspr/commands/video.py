"""Frames to a video file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ogspr.errors import UserError
from ogspr.records.files import (
    check_writable,
    cleanup_on_error,
    make_inner_folder,
    unfinished_name,
    user_io_errors,
)
from ogspr.records.run import RunFolder
from ogspr.types import UInt8Array

_FRAMES_PER_SECOND = 25
_SHORTEST_SIDE = 336  # 84-pixel frames are hard to see
_FORMATS = (".mp4", ".gif")


@contextlib.contextmanager
def recording_video(path: Path, *, keep_existing: bool = False) -> Iterator[VideoFile]:
    """A video that has its name when all is in it; whatever had that name before lives until then.

    `keep_existing`: nothing is replaced. It gets the first unused number; its `path` says which.
    """
    VideoFile.check(path)
    if (run := RunFolder(path.parent.parent)).exists and path.parent == run.videos:
        make_inner_folder(run.videos)
    check_writable(path)  # the writer opens it late, and then says less
    # A unique name, because others may be recording to the same path; its suffix decides the format.
    unfinished = unfinished_name(path, path.suffix)
    with cleanup_on_error(unfinished):
        with user_io_errors(unfinished):
            unfinished.touch(exist_ok=False)
        with contextlib.closing(VideoFile(unfinished)) as video:
            yield video
        with user_io_errors(path):
            video.path = _claimed(path) if keep_existing else path
            unfinished.replace(video.path)


def _claimed(path: Path) -> Path:
    """`path`, or the same name with the first unused number: as an empty file, which reserves the name."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    for name in itertools.chain([path], numbered):
        with contextlib.suppress(FileExistsError):
            name.touch(exist_ok=False)
            return name
    raise AssertionError("numbers do not end")


class VideoFile:
    """Writes (channels, height, width) frames to an .mp4 or .gif file, enlarged by whole pixels."""

    @staticmethod
    def check(path: Path) -> None:
        """Refuses what could only fail later."""
        if path.suffix.lower() not in _FORMATS:
            raise UserError(f"a video file must end in .mp4 or .gif, got {path.name}.")
        if find_spec("imageio") is None or find_spec("imageio_ffmpeg") is None:
            raise UserError("videos need two more packages: pip install imageio imageio-ffmpeg.")

    def __init__(self, path: Path) -> None:
        import imageio.v2 as imageio

        settings: dict[str, Any] = (
            {"fps": _FRAMES_PER_SECOND, "macro_block_size": 2}
            if path.suffix.lower() == ".mp4"
            else {"duration": 1000 / _FRAMES_PER_SECOND, "loop": 0}
        )
        self.path = path
        self._writer = imageio.get_writer(path, **settings)

    def add(self, frame: UInt8Array) -> None:
        factor = max(1, -(-_SHORTEST_SIDE // min(frame.shape[1:])))
        picture = frame.transpose(1, 2, 0).repeat(factor, axis=0).repeat(factor, axis=1)
        self._writer.append_data(np.broadcast_to(picture, (*picture.shape[:2], 3)))

    def close(self) -> None:
        self._writer.close()
