"""Names of films."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from ogspr.commands.video import recording_video
from ogspr.errors import UserError


def film(path, meanwhile=lambda: None, **options):
    """Its name in the end; `meanwhile`: what happens before it is whole."""
    with recording_video(path, **options) as recorder:
        recorder.add(np.zeros((3, 84, 84), np.uint8))
        meanwhile()
    return recorder.path.name


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("keep_existing", [True, False])
def test_films_that_are_made_at_the_same_time_do_not_disturb_each_other(tmp_path, keep_existing):
    """Each has begun before any film is there to be seen."""
    count, path = 4, tmp_path / "videos" / "best.mp4"
    everybody = Barrier(count, timeout=60)
    with ThreadPoolExecutor(count) as pool:
        found = set(pool.map(lambda _: film(path, everybody.wait, keep_existing=keep_existing), range(count)))
    numbered = {"best-2.mp4", "best-3.mp4", "best-4.mp4"} if keep_existing else set()
    assert found == names(path.parent) == {"best.mp4"} | numbered
    assert all(b"ftyp" in (path.parent / name).read_bytes()[:16] for name in found)


def test_a_film_that_somebody_has_is_replaced_only_where_that_is_wanted(tmp_path):
    path = tmp_path / "best.mp4"
    path.write_text("precious")
    assert film(path, keep_existing=True) == "best-2.mp4"
    assert path.read_text() == "precious"
    assert film(path) == "best.mp4"
    assert b"ftyp" in path.read_bytes()[:16]


def test_a_film_that_fails_leaves_nothing_and_its_name_to_the_next(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        film(tmp_path / "best.mp4", interrupt, keep_existing=True)
    assert names(tmp_path) == set()
    assert film(tmp_path / "best.mp4", keep_existing=True) == "best.mp4"


def test_what_a_killed_process_left_takes_no_name(tmp_path):
    (tmp_path / "best.unfinished-01234567.mp4").write_text("half")
    assert film(tmp_path / "best.mp4", keep_existing=True) == "best.mp4"


def test_a_place_where_nothing_can_be_written_is_told():
    with pytest.raises(UserError, match=r"cannot write /proc/best\.mp4"):
        film(Path("/proc/best.mp4"), keep_existing=True)
