"""A cache is written once, whole, and never trained on when it is damaged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posenc.data.cache import META, TOKENS, open_or_build

IDS = np.arange(5000, dtype=np.uint16)
BUILDER = """
import sys, time, numpy as np
from pathlib import Path
from posenc.data.cache import open_or_build
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
    (folder / META).write_text("{")


def other_format(folder: Path) -> None:
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps({**meta, "format": 0}))


@pytest.mark.parametrize("damage", [flip_a_bit, cut_short, drop_meta, garble_meta, other_format])
def test_a_damaged_cache_is_built_again_with_a_notice(damage, tmp_path, capsys):
    folder = tmp_path / "tokens"
    build(folder)
    damage(folder)
    assert np.array_equal(build(folder), IDS)
    assert "is damaged" in capsys.readouterr().err
    assert np.array_equal(build(folder), IDS)
    assert "is damaged" not in capsys.readouterr().err


def test_a_build_that_fails_leaves_nothing_behind(tmp_path):
    def breaks():
        yield IDS
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        open_or_build(tmp_path / "tokens", "print", np.dtype("uint16"), breaks)
    assert [file.name for file in tmp_path.iterdir()] == ["tokens.lock"]


def test_processes_that_start_together_build_once(tmp_path):
    command = [sys.executable, "-c", BUILDER, str(tmp_path / "tokens")]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=60)[0] for process in together]
    assert [process.returncode for process in together] == [0] * 4
    assert sum(output.count("building") for output in outputs) == 1


def test_a_process_killed_while_building_harms_nothing(tmp_path):
    folder = tmp_path / "tokens"
    with subprocess.Popen([sys.executable, "-c", BUILDER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert not folder.exists()
    assert np.array_equal(build(folder), IDS)
    assert {file.name for file in tmp_path.iterdir()} == {"tokens", "tokens.lock"}
