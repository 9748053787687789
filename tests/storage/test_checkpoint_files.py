import os
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.training.checkpoint_io import CheckpointIO, check_configuration

NO_CHECKSUM = "0" * 16


def saved(folder: Path, step: int) -> Path:
    state = {"configuration": {"seed": 0}, "state_dict": {"weight": torch.full((50,), float(step))}}
    CheckpointIO().save_checkpoint(state, folder / checkpoint_files.stem(step))
    return checkpoint_files.newest_first(folder)[0]


def test_a_checkpoint_carries_its_checksum_in_its_name_and_comes_back(tmp_path):
    file = saved(tmp_path, 30)
    assert list(tmp_path.iterdir()) == [file]
    assert checkpoint_files.intact(file)
    assert torch.equal(checkpoint_files.load(file)["state_dict"]["weight"], torch.full((50,), 30.0))


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path_factory, place, bit):
    file = saved(tmp_path_factory.mktemp("flipped"), 1)
    data = bytearray(file.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    file.write_bytes(data)
    assert not checkpoint_files.intact(file)


def test_the_newest_that_is_whole_is_used_and_the_damaged_ones_are_named(tmp_path):
    files = [saved(tmp_path, step) for step in (1, 2, 3)]
    for file in files[1:]:
        file.write_bytes(file.read_bytes()[:-1])
    assert checkpoint_files.newest(tmp_path) == (files[0], [files[2], files[1]])


class Trap:
    def __reduce__(self):
        return pytest.fail, ("it was executed",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_code_in_a_pickle_is_refused_and_not_executed(tmp_path, protocol):
    file = tmp_path / "trap.ckpt"
    file.write_bytes(pickle.dumps({"configuration": {}, "state_dict": Trap()}, protocol=protocol))
    with pytest.raises(UserError, match="was not loaded|is not a checkpoint"):
        checkpoint_files.load(file)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps(3), pickle.dumps({"configuration": 3})])
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "file.ckpt").write_bytes(content)
    with pytest.raises(UserError, match="file.ckpt"):
        checkpoint_files.load(tmp_path / "file.ckpt")


def test_a_checkpoint_for_which_memory_is_short_is_not_called_damaged(tmp_path, monkeypatch):
    def load(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 600000000 bytes.")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        checkpoint_files.load(tmp_path / "step.ckpt")


def test_what_makes_the_curve_may_not_differ_and_where_it_is_written_may():
    ours = {"pos": {"base": 500.0, "layout": "half"}, "seed": 1, "name": "a", "text": "x", "trainer": {"devices": 2}}
    check_configuration({"configuration": {**ours, "name": "b", "trainer": {"devices": 1}}}, ours)
    theirs = {**ours, "pos": {"base": 100.0, "layout": "half"}, "seed": 2}
    with pytest.raises(UserError, match=r"pos.base=100.0 \(here 500.0\), seed=2 \(here 1\)$"):
        check_configuration({"configuration": theirs}, ours)
    with pytest.raises(UserError, match="text=y"):
        check_configuration({"configuration": {**ours, "text": "y"}}, ours)


def test_what_is_no_plain_file_is_no_checkpoint_and_not_read(tmp_path):
    file = saved(tmp_path, 1)
    os.mkfifo(tmp_path / f"step-000000002-{NO_CHECKSUM}.ckpt")
    (tmp_path / f"step-000000003-{NO_CHECKSUM}.ckpt").mkdir()
    (tmp_path / f"step-000000004-{NO_CHECKSUM}.ckpt").symlink_to("/dev/zero")
    assert checkpoint_files.newest(tmp_path) == (file, [])


def test_of_many_values_that_differ_three_are_named_and_the_others_counted():
    ours = dict.fromkeys("edcba", 1)
    with pytest.raises(UserError, match=r": a=2 \(here 1\), b=2 \(here 1\), c=2 \(here 1\) and 2 more$"):
        check_configuration({"configuration": dict.fromkeys(ours, 2)}, ours)
