"""Whether a result could be written is found out without writing it."""

import os
from pathlib import Path

import pytest

from ogspr.errors import UserError
from ogspr.records.files import check_writable, make_folder


def test_nothing_is_left_behind(tmp_path):
    check_writable(tmp_path / "deep" / "result.csv")
    assert list((tmp_path / "deep").iterdir()) == []


def test_an_existing_file_stays_as_it_is(tmp_path):
    path = tmp_path / "result.csv"
    path.write_text("kept")
    os.utime(path, (0, 0))
    check_writable(path)
    assert (path.read_text(), path.stat().st_mtime) == ("kept", 0.0)


def test_a_link_to_nothing_stays_one(tmp_path):
    link = tmp_path / "result.csv"
    link.symlink_to(tmp_path / "target.csv")
    with pytest.raises(UserError, match="it is a link; choose another name"):
        check_writable(link)
    assert link.is_symlink()
    assert not (tmp_path / "target.csv").exists()


def test_folders_and_files_in_each_others_place_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="it is a folder; choose another name"):
        check_writable(tmp_path)
    with pytest.raises(UserError, match="it is a file, where a folder is needed"):
        make_folder(tmp_path / "file")
    with pytest.raises(UserError, match="cannot write"):
        check_writable(tmp_path / "file" / "result.csv")


def test_a_place_that_cannot_be_written_is_told():
    with pytest.raises(UserError, match=r"cannot write /proc/result\.csv"):
        check_writable(Path("/proc/result.csv"))
