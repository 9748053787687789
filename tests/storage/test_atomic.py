import errno
import os
import secrets
import stat

import pytest

from posenc.errors import RunError
from posenc.storage.atomic import atomic_write, clear_partial
from posenc.storage.resource_errors import disk_errors


@pytest.mark.parametrize("interrupted", ["fsync", "replace"])
def test_a_failure_leaves_what_was_there_before_and_nothing_else(interrupted, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    file = tmp_path / "file"
    file.write_text("before")
    monkeypatch.setattr(os, interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(file, "after")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_flushed_to_disk_before_it_has_its_name_and_the_name_after_that(tmp_path, monkeypatch):
    """Otherwise a power failure could leave an empty file in place of a checkpoint, or none."""
    flushed: list[tuple[bool, bool]] = []

    def fsync(handle: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    atomic_write(tmp_path / "file", "text")
    assert flushed == [(False, False), (True, True)]


def test_what_a_killed_process_left_is_cleared_away_and_nothing_else(tmp_path):
    for name in ("file", "file.0f1e2d3c.partial", "film.mkv.partial", "a.download.partial"):
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(tmp_path)
    clear_partial(tmp_path / "linked")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"file", "film.mkv.partial", "a.download.partial", "linked"}


def test_a_link_in_the_place_is_replaced_and_not_followed(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.symlink_to(mine)
    atomic_write(theirs, "theirs")
    assert (mine.read_text(), theirs.read_text()) == ("mine", "theirs")
    assert not theirs.is_symlink()


def test_a_link_where_the_new_file_is_written_is_not_followed(tmp_path, monkeypatch):
    mine, link = tmp_path / "mine", tmp_path / "file.0.partial"
    mine.write_text("mine")
    link.symlink_to(mine)
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0")
    with pytest.raises(RunError, match="file could not be written: File exists"):
        atomic_write(tmp_path / "file", "theirs")
    assert mine.read_text() == "mine"


def test_a_name_that_is_no_text_is_written_with_question_marks(tmp_path):
    atomic_write(tmp_path / "file", os.fsdecode(b"caf\xe9 was left out"))
    assert (tmp_path / "file").read_bytes() == b"caf? was left out"


def test_a_folder_that_is_gone_is_said_in_a_sentence(tmp_path):
    with pytest.raises(RunError, match="gone/file could not be written: No such file or directory"):
        atomic_write(tmp_path / "gone" / "file", "text")


@pytest.mark.parametrize("code", [errno.EFBIG, errno.EIO, errno.ESTALE, errno.EROFS])
def test_whatever_the_disk_refuses_is_said_in_the_same_form(code, tmp_path):
    with (
        pytest.raises(RunError, match=f"file could not be written: {os.strerror(code)}"),
        disk_errors(tmp_path / "file"),
    ):
        raise OSError(code, os.strerror(code))
