from contextlib import suppress

from posenc.storage.atomic import clear_partial, whole


def test_a_file_appears_whole_at_the_end_and_not_before(tmp_path):
    file = tmp_path / "file"
    with whole(file, lambda: 4) as writing:
        writing.stream.write(b"text")
        assert not file.exists()
    assert file.read_bytes() == b"text"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_leaves_what_was_there_before_and_nothing_else(tmp_path):
    file = tmp_path / "file"
    file.write_text("before")
    with suppress(KeyboardInterrupt), whole(file, lambda: 4) as writing:
        writing.stream.write(b"text")
        raise KeyboardInterrupt
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_the_name_may_depend_on_what_was_written(tmp_path):
    with whole(tmp_path / "file", lambda: 0) as writing:
        writing.file = tmp_path / "another"
    assert [file.name for file in tmp_path.iterdir()] == ["another"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    (tmp_path / "file.partial").touch()
    (tmp_path / "file").touch()
    clear_partial(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
