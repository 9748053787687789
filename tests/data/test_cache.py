"""A cache is written once, whole, and never trained on when it is damaged."""

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from posenc.data.cache import built_once
from posenc.data.corpora import TextFiles
from posenc.data.prepare import prepare
from posenc.data.tokenizers import BytePairs
from posenc.data.tokens import META, TOKENS, open_or_build
from posenc.errors import RunError, UserError
from tests.config.wrong_input import as_a_user
from tests.faults import data as faults
from tests.faults.limits import can_mount

IDS = np.arange(5000, dtype=np.uint16)
BUILDER = """
import sys, time, numpy as np
from pathlib import Path
from posenc.data.tokens import open_or_build
def encode():
    print("building", flush=True)
    for start in range(0, 5000, 500):
        time.sleep(0.05)
        yield np.arange(start, start + 500, dtype=np.uint16)
tokens = open_or_build(Path(sys.argv[1]), "print", np.dtype("uint16"), encode)
assert np.array_equal(tokens.ids, np.arange(5000))
"""


def build(folder: Path, fingerprint: str = "print") -> np.ndarray:
    return open_or_build(folder, fingerprint, np.dtype("uint16"), lambda: iter([IDS[:3000], IDS[3000:]])).ids


def never() -> object:
    raise AssertionError("a sound cache was built again")


def test_what_was_written_is_read_back_without_building_again(tmp_path):
    folder = tmp_path / "tokens"
    assert np.array_equal(build(folder), IDS)
    again = open_or_build(folder, "print", np.dtype("uint16"), never)  # type: ignore[arg-type]
    assert np.array_equal(again.ids, IDS)
    assert isinstance(again.ids, np.memmap)


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / TOKENS).read_bytes())
    data[1234] ^= 1
    (folder / TOKENS).write_bytes(data)


def cut_short(folder: Path) -> None:
    os.truncate(folder / TOKENS, 999)


def drop_meta(folder: Path) -> None:
    (folder / META).unlink()


def garble_meta(folder: Path) -> None:
    (folder / META).write_text("[" * 100_000)


def other_format(folder: Path) -> None:
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps({**meta, "format": 0}))


def other_text(folder: Path) -> None:
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps({**meta, "fingerprint": "another"}))


def pipe_for_meta(folder: Path) -> None:
    drop_meta(folder)
    os.mkfifo(folder / META)


def pipe_for_tokens(folder: Path) -> None:
    (folder / TOKENS).unlink()
    os.mkfifo(folder / TOKENS)


DAMAGES = [flip_a_bit, cut_short, drop_meta, garble_meta, other_format, other_text, pipe_for_meta, pipe_for_tokens]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_built_again_with_a_notice(damage, tmp_path, capsys):
    folder = tmp_path / "tokens"
    build(folder)
    damage(folder)
    assert np.array_equal(build(folder), IDS)
    assert "is damaged" in capsys.readouterr().err
    assert np.array_equal(build(folder), IDS)
    assert "is damaged" not in capsys.readouterr().err


def test_a_cache_that_cannot_be_read_after_it_was_built_is_not_built_for_ever(tmp_path):
    builds: list[Path] = []

    def unreadable(_: Path) -> None:
        raise UserError("its checksum does not match")

    with pytest.raises(UserError, match="has just been built and cannot be read: its checksum does not match"):
        built_once(tmp_path / "tokens", unreadable, builds.append)
    assert len(builds) == 1


def test_a_folder_made_for_a_build_that_fails_does_not_stay(tmp_path):
    with pytest.raises(UserError, match="the corpus is empty"):
        open_or_build(tmp_path / "new" / "cache" / "tokens", "print", np.dtype("uint16"), refuses)
    assert list(tmp_path.iterdir()) == []


def refuses():
    yield IDS
    raise UserError("the corpus is empty")


def test_a_cache_that_is_whole_may_lie_where_nothing_can_be_written(tmp_path):
    build(tmp_path / "tokens")
    tmp_path.chmod(0o555)
    try:
        command = [*as_a_user(), sys.executable, "-c", BUILDER, str(tmp_path / "tokens")]
        result = subprocess.run(command, capture_output=True, text=True)
    finally:
        tmp_path.chmod(0o755)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


def test_open_tokens_outlive_their_folder(tmp_path):
    ids = build(tmp_path / "tokens")
    shutil.rmtree(tmp_path / "tokens")
    assert np.array_equal(ids, IDS)


def test_a_process_killed_while_building_harms_nothing(tmp_path):
    folder = tmp_path / "tokens"
    with subprocess.Popen([sys.executable, "-c", BUILDER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert not folder.exists()
    assert np.array_equal(build(folder), IDS)
    assert [file.name for file in tmp_path.iterdir()] == ["tokens"]


def test_eight_processes_that_start_together_build_one_tokenizer_and_one_cache(tmp_path):
    faults.write_text(tmp_path / "text.txt", megabytes=2)
    assert faults.build_once(tmp_path / "text.txt", tmp_path / "cache", faults.PAIRS)


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small file system")
@pytest.mark.parametrize("vocabulary", [faults.BYTES, faults.PAIRS])
def test_a_full_disk_is_named_and_the_cache_is_built_once_there_is_space(vocabulary, tmp_path):
    faults.write_text(tmp_path / "text.txt", megabytes=2)
    ((_, out, _),) = faults.ended([faults.begin(tmp_path / "text.txt", tmp_path / "cache", vocabulary)])
    expected = faults.tokens(out)
    assert faults.survives_a_full_disk(tmp_path / "text.txt", tmp_path / "small", vocabulary, "500k", expected)


def test_a_full_disk_names_the_file(tmp_path):
    class Full(OSError):
        def __init__(self) -> None:
            super().__init__(errno.ENOSPC, "No space left on device")

    def build(_: Path) -> None:
        raise Full

    def read(_: Path) -> None:
        raise UserError("there is nothing")

    with pytest.raises(RunError, match="tokens could not be written: No space left on device$"):
        built_once(tmp_path / "tokens", read, build)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_behind_stdout_is_not_taken_for_a_full_cache(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("in the beginning\n" * 99)

    def tokenize() -> None:
        prepare(TextFiles(str(text)), BytePairs(260), tmp_path / "cache", "text", 1, 2)

    for fill in (lambda: build(tmp_path / "tokens"), tokenize):
        with pytest.raises(OSError, match="No space left"), open("/dev/full", "w") as full, redirect_stdout(full):
            fill()
        fill()
    assert np.array_equal(build(tmp_path / "tokens"), IDS)
