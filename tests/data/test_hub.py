"""Datasets of the Hugging Face Hub: their splits, and what identifies them."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from posenc.data.corpora import SPLITS, HubCut, HubHeldOut, HubSplits
from posenc.errors import RunError, UserError


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def hub_folder(folder: Path, **splits: list[str | None]) -> str:
    """A local folder in the layout of a dataset on the hub."""
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return str(folder)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("streaming", [False, True])
class TestHub:
    """The code that reads by name from the hub, on a local folder with the hub switched off."""

    def test_own_splits_are_used(self, streaming, tmp_path):
        path = hub_folder(tmp_path, train=["a\n", "b\n"], validation=["v\n"], test=["t\n"])
        corpus = HubSplits(path, streaming=streaming, documents=False)
        assert [b"".join(corpus.stream(split)) for split in SPLITS] == [b"a\nb\n", b"v\n", b"t\n"]

    def test_one_text_is_cut_by_position(self, streaming, tmp_path):
        path = hub_folder(tmp_path, train=[f"line {number:03}\n" for number in range(100)])
        corpus = HubCut(path, streaming=streaming, documents=False)
        before = corpus.fingerprint()
        assert [len(b"".join(corpus.stream(split))) for split in SPLITS] == [810, 45, 45]
        assert corpus.fingerprint() == before

    def test_the_first_documents_are_held_out(self, streaming, tmp_path):
        path = hub_folder(tmp_path, train=[f"d{number}" for number in range(9)])
        for limit in (5, 6):  # two documents have six bytes
            corpus = HubHeldOut(path=path, streaming=streaming, held_out=2, limit=limit)
            assert [b"".join(corpus.stream(split)) for split in SPLITS] == [b"d4\0d5\0", b"d0\0d1\0", b"d2\0d3\0"]

    def test_what_is_not_there_is_said_in_a_sentence(self, streaming, tmp_path):
        with pytest.raises(UserError, match="cannot be loaded"):
            list(HubSplits(str(tmp_path / "nowhere"), streaming=streaming).stream("train"))
        path = hub_folder(tmp_path, train=["a"])
        with pytest.raises(UserError, match="data.field=body is not a column of .*, which has text"):
            list(HubHeldOut(path=path, field="body", streaming=streaming).stream("valid"))

    def test_a_row_without_text_is_no_document_and_one_with_a_nul_is_not_two(self, streaming, tmp_path):
        path = hub_folder(tmp_path, train=["a\0b", None, "c"])
        assert list(HubHeldOut(path=path, streaming=streaming).stream("valid")) == [b"a b\0", b"c\0"]

    def test_a_configuration_of_the_hubs_own_conversion_is_a_folder(self, streaming, tmp_path):
        """Its branch has a folder for each, and no README that would name them."""
        for folder in ("raw", "clean"):
            (tmp_path / folder / "train").mkdir(parents=True)
            hub_folder(tmp_path / folder / "train", train=[folder])
        assert list(HubCut(str(tmp_path), data_dir="raw", streaming=streaming).rows("train")) == [b"raw\0"]


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, RunError), (errno.ECONNREFUSED, UserError)])
def test_the_cause_of_a_wrapped_error_is_said(code, kind, monkeypatch):
    def fail(*_, **__):
        try:
            raise OSError(code, "its cause")
        except OSError as error:
            raise ValueError("An error occurred") from error

    monkeypatch.setattr("datasets.load_dataset", fail)
    with pytest.raises(kind, match=rf"cannot be loaded: An error occurred: \[Errno {code}\] its cause"):
        list(HubCut("name").rows("train"))


def test_a_cache_inside_a_local_dataset_would_change_it(tmp_path):
    corpus = HubCut(str(tmp_path))
    assert corpus.reads(tmp_path / "cache" / "tokens.bin")
    assert not corpus.reads(tmp_path / ".cache" / "tokens.bin")
    assert not HubCut("name").reads(tmp_path / "name")


def test_a_local_dataset_is_known_by_its_contents_and_not_by_its_path(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / ".git").mkdir(parents=True)
        (tmp_path / folder / ".git" / "HEAD").write_text(folder)
    one, other = (HubCut(hub_folder(tmp_path / folder, train=["x\n"])) for folder in ("a", "b"))
    assert one.fingerprint() == other.fingerprint()
    hub_folder(tmp_path / "b", train=["y\n"])
    assert HubCut(other.path).fingerprint() != one.fingerprint()
    (tmp_path / "a" / "train.jsonl").rename(tmp_path / "a" / "test.jsonl")
    assert HubCut(one.path).fingerprint() != one.fingerprint()


def test_a_local_dataset_may_have_a_file_whose_name_is_not_utf_8(tmp_path):
    folder = hub_folder(tmp_path, train=["x\n"])
    before = HubCut(folder).fingerprint()
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_text('{"text": "x"}\n')
    assert HubCut(folder).fingerprint() != before


def test_a_corpus_on_the_hub_is_known_by_its_name_its_revision_and_its_limit_and_not_by_how_it_is_loaded():
    one = HubHeldOut("a/b", revision="0f")
    assert replace(one, streaming=True).fingerprint() == one.fingerprint()
    others = ({"name": "c"}, {"data_dir": "c"}, {"field": "body"}, {"documents": False}, {"held_out": 9})
    for other in ({"revision": None}, {"revision": "1f"}, {"path": "a/c"}, {"limit": 9}, *others):
        assert replace(one, **other).fingerprint() != one.fingerprint(), other


def test_a_dataset_is_loaded_by_its_configuration_and_revision(monkeypatch):
    load = Mock(return_value=[{"text": "a"}])
    monkeypatch.setattr("datasets.load_dataset", load)
    assert list(HubSplits("a/b", name="c", revision="0f", streaming=True).stream("valid")) == [b"a\0"]
    load.assert_called_once_with("a/b", "c", data_dir=None, split="validation", revision="0f", streaming=True)


def test_a_dataset_that_is_split_otherwise_is_another_corpus():
    assert len({kind("a/b").fingerprint() for kind in (HubCut, HubSplits)}) == 2


@pytest.mark.usefixtures("offline")
def test_a_column_of_numbers_is_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": 5}\n')
    with pytest.raises(UserError, match="data.field=text of .* contains int, not text"):
        list(HubCut(str(tmp_path)).rows("train"))
