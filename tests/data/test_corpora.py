"""Text comes whole, in its splits, from every kind of source, and what cannot be read is said in a sentence."""

import codecs
import gzip
import json
import lzma
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posenc.data import readers
from posenc.data.corpora import SPLITS, HubCut, HubHeldOut, HubSplits, KingJamesBible, TextFiles, cut_stream
from posenc.data.readers import would_find
from posenc.errors import UserError

DOCUMENTS = [f"Document {number}: été, 東京 and plain words.\nSecond line." for number in range(200)]


def write_txt(folder: Path) -> Path:
    file = folder / "a.txt"
    file.write_text("".join(f"{text}\n<|end|>\n" for text in DOCUMENTS))
    return file


def write_jsonl(folder: Path) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text + "\n"}) + "\n" for text in DOCUMENTS))
    return file


def write_parquet(folder: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    file = folder / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [text + "\n" for text in DOCUMENTS]}), file)
    return file


def everything(corpus) -> bytes:
    return b"".join(piece for split in SPLITS for piece in corpus.stream(split))


EXPECTED = "".join(f"{text}\n\0" for text in DOCUMENTS).encode()
WRITERS = pytest.mark.parametrize("write", [write_txt, write_jsonl, write_parquet])


@pytest.mark.parametrize(
    ("write", "pack"),
    [(write_txt, None), (write_jsonl, None), (write_parquet, None), (write_jsonl, gzip), (write_parquet, lzma)],
)
def test_every_format_gives_the_same_documents(write, pack, tmp_path):
    file = write(tmp_path)
    if pack is not None:
        packed = file.with_name(file.name + (".gz" if pack is gzip else ".xz"))
        packed.write_bytes(pack.compress(file.read_bytes()))
        file.unlink()
        file = packed
    assert everything(TextFiles(str(file), separator="<|end|>")) == EXPECTED


@WRITERS
def test_splits_are_cut_between_documents_at_90_and_95_percent(write, tmp_path):
    corpus = TextFiles(str(write(tmp_path)), separator="<|end|>")
    train, valid, test = (b"".join(corpus.stream(split)) for split in SPLITS)
    assert train + valid + test == EXPECTED
    assert [part.count(b"\0") for part in (train, valid, test)] == pytest.approx([180, 10, 10], abs=1)
    assert train.endswith(b"\0")
    assert valid.endswith(b"\0")


def test_a_folder_and_a_glob_read_their_files_in_order(tmp_path):
    (tmp_path / ".git").mkdir()
    for name in ("b.txt", "a.txt", "c.md", "d", "e.rst", ".git/f", ".g.txt"):
        (tmp_path / name).write_text(f"{name} " * 30)
    assert everything(TextFiles(f"{tmp_path}/*.txt")) == ("a.txt " * 30 + "b.txt " * 30).encode()
    assert everything(TextFiles(str(tmp_path))) == ("a.txt " * 30 + "b.txt " * 30 + "c.md " * 30 + "d " * 30).encode()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", True),
        ("runs", True),
        ("**/*.txt", True),
        ("run[s]/**", True),
        ("*/*/*/*/*.txt", True),
        ("a.txt", False),
        ("*.txt", False),
        ("books", False),
        ("books*/**/*.txt", False),
        ("**/*.jsonl", False),
    ],
)
def test_a_file_of_a_run_to_come_is_known_to_be_part_of_a_text_or_not(path, found, tmp_path):
    for folder in ("books", "runs"):
        (tmp_path / folder).mkdir()
    assert would_find(f"{tmp_path}/{path}", tmp_path / "runs" / "default" / "rope" / "seed0" / "sample.txt") == found


def test_equal_text_has_an_equal_fingerprint_wherever_it_lies(tmp_path):
    (tmp_path / "x").mkdir()
    one, other = write_txt(tmp_path), write_txt(tmp_path / "x")
    fingerprint = TextFiles(str(one)).fingerprint()
    assert fingerprint == TextFiles(str(other)).fingerprint()
    other.write_text(other.read_text().replace("Document 7", "Document 8"))
    assert fingerprint != TextFiles(str(other)).fingerprint()
    assert fingerprint != TextFiles(str(one), separator="<|end|>").fingerprint()
    other.write_bytes(one.read_bytes())


@example([b"a\0", b"b\0"], [2])  # a document, and with it a chunk, that ends at the cut
@given(
    st.lists(st.text("a\0", max_size=9).map(str.encode), max_size=9),
    st.lists(st.integers(0, 60), max_size=2).map(sorted),
)
def test_a_part_ends_at_the_first_mark_from_its_cut_on(chunks, cuts):
    """By the definition, on the whole text at once."""
    text, ends = b"".join(chunks), [0]
    for cut in cuts:
        found = text.find(b"\0", max(ends[-1], cut - 1))
        ends.append(found + 1 if found >= 0 else len(text))
    pieces = list(cut_stream(chunks, cuts, b"\0"))
    parts = [b"".join(piece for number, piece in pieces if number == part) for part in range(len(ends))]
    assert parts == [text[first:end] for first, end in zip(ends, [*ends[1:], len(text)], strict=True)]


@pytest.mark.parametrize(("count", "mark"), [(19, b" "), (20, b"\n")])
def test_a_text_of_fewer_than_20_lines_is_cut_between_words(count, mark, tmp_path):
    (tmp_path / "a.txt").write_text("a line\n" * count)
    assert TextFiles(str(tmp_path)).survey.mark == mark


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 300), st.integers(0, 300))
def test_cutting_loses_and_repeats_nothing(chunks, first, length):
    pieces = list(cut_stream(chunks, [first, first + length], b"\0"))
    assert b"".join(piece for _, piece in pieces) == b"".join(chunks)
    parts = [part for part, _ in pieces]
    assert parts == sorted(parts)
    for part, cut in ((0, first), (1, first + length)):
        before = b"".join(piece for number, piece in pieces if number <= part)
        assert part == max(parts, default=0) or part not in parts or (len(before) >= cut and before.endswith(b"\0"))


def test_the_bible_is_whole():
    text = everything(KingJamesBible())
    assert text.startswith(b"In the beginning God created the heaven and the earth.")
    assert text.endswith(b"Amen.")
    assert len(text) > 4_100_000


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def hub_folder(folder: Path, **splits: list[str]) -> str:
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
        corpus = HubHeldOut(path=path, streaming=streaming, held_out=2, limit=5)
        assert [b"".join(corpus.stream(split)) for split in SPLITS] == [b"d4\0d5\0", b"d0\0d1\0", b"d2\0d3\0"]

    def test_what_is_not_there_is_said_in_a_sentence(self, streaming, tmp_path):
        with pytest.raises(UserError, match="cannot be loaded"):
            list(HubSplits(str(tmp_path / "nowhere"), streaming=streaming).stream("train"))
        path = hub_folder(tmp_path, train=["a"])
        with pytest.raises(UserError, match="data.field=body is not a column of .*, which has text"):
            list(HubHeldOut(path=path, field="body", streaming=streaming).stream("valid"))

    def test_a_row_that_would_be_two_documents_is_refused(self, streaming, tmp_path):
        path = hub_folder(tmp_path, train=["a\0b"])
        with pytest.raises(UserError, match="a row of .* contains a NUL character, which would end the document"):
            list(HubHeldOut(path=path, streaming=streaming).stream("valid"))


@pytest.mark.parametrize(
    ("content", "byte"),
    [
        (b"plain\n" * 300_000 + "caf\xe9".encode("latin-1"), "byte 1800003 is 0xe9"),
        ("plain".encode("utf-16"), "byte 0 is 0xff"),
        ("plain".encode("utf-16-le"), "byte 1 is 0x00"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_text_that_is_not_utf_8_is_refused_with_file_and_byte(name, content, byte, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(UserError, match=f"{name} is not UTF-8 text: {byte}; convert it"):
        TextFiles(str(tmp_path)).fingerprint()


def test_the_same_text_has_the_same_fingerprint_in_every_format_and_under_every_field(tmp_path):
    plain = tmp_path / "a.txt"
    plain.write_text("".join(f"{text}\n<|end|>\n" for text in DOCUMENTS))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"body": text + "\n"}) + "\n" for text in DOCUMENTS))
    corpora = [TextFiles(str(tmp_path / name), "body", "<|end|>") for name in ("a.txt", "b.txt.gz", "c.jsonl")]
    assert (
        len({corpus.fingerprint() for corpus in corpora} | {TextFiles(str(write_parquet(tmp_path))).fingerprint()}) == 1
    )


@pytest.mark.parametrize("name", ["A.TXT", "a.txt.GZ", "a.jsonl"])
def test_neither_a_byte_order_mark_nor_capitals_in_a_name_matter(name, tmp_path):
    text = json.dumps({"text": "words"}).encode() if "json" in name else b"words"
    marked = codecs.BOM_UTF8 + text
    (tmp_path / name).write_bytes(gzip.compress(marked) if "GZ" in name else marked)
    assert everything(TextFiles(str(tmp_path))).rstrip(b"\0") == b"words"


@pytest.mark.parametrize("dtype", ["string", "large_string", "string_view", "dictionary"])
def test_a_column_of_text_is_read_however_it_is_encoded(dtype, tmp_path):
    import pyarrow
    import pyarrow.parquet

    column = pyarrow.array(["one", None, "two"])
    column = column.dictionary_encode() if dtype == "dictionary" else column.cast(dtype)
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    assert everything(TextFiles(str(tmp_path))) == b"one\0two\0"


def test_a_parquet_whose_text_is_ambiguous_or_invalid_is_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    latin = pyarrow.StringArray.from_buffers(
        1, pyarrow.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pyarrow.py_buffer(b"\xe9")
    )
    for columns, sentence in (
        ([latin], "a.parquet is not UTF-8 text"),
        ([["a\0b"]], "a.parquet contains a NUL character"),
        ([["a"], ["b"]], "a.parquet must have one column data.field=text, and has text, text"),
    ):
        table = pyarrow.Table.from_arrays([pyarrow.array(column) for column in columns], ["text"] * len(columns))
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(UserError, match=sentence):
            everything(TextFiles(str(tmp_path)))


@pytest.mark.parametrize(
    "column", [[b"bytes"], [["a", "list"]], [{"a": "struct"}], [7], [0.5]], ids=lambda column: type(column[0]).__name__
)
def test_a_column_of_a_parquet_that_is_not_text_is_refused(column, tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="a.parquet: the column data.field=text contains .*, not text"):
        everything(TextFiles(str(tmp_path)))


def test_a_name_with_brackets_is_a_file_if_there_is_one(tmp_path):
    (tmp_path / "book[1].txt").write_text("the bracketed one")
    (tmp_path / "book1.txt").write_text("another")
    assert everything(TextFiles(f"{tmp_path}/book[1].txt")) == b"the bracketed one"
    (tmp_path / "book[1].txt").unlink()
    assert everything(TextFiles(f"{tmp_path}/book[1].txt")) == b"another"


def test_streams_that_are_compressed_one_after_the_other_are_one_text_or_refused(tmp_path):
    second = lzma.compress(b"text" * 999)
    for stream, sound in ((second, True), (b"damaged" + second[7:], False)):
        (tmp_path / "a.xz").write_bytes(lzma.compress(b"text") + stream)
        with nullcontext() if sound else pytest.raises(UserError, match="a.xz cannot be read"):
            assert everything(TextFiles(str(tmp_path))) == b"text" * 1000


def test_zeros_after_a_long_compressed_stream_are_padding(monkeypatch, tmp_path):
    monkeypatch.setattr(readers, "CHUNK", 64)  # which is read at the file's end
    text = b"".join(f"{number} ".encode() for number in range(500))
    (tmp_path / "a.xz").write_bytes(lzma.compress(text) + b"\0" * 8)
    assert everything(TextFiles(str(tmp_path))) == text


@pytest.mark.parametrize("pack", [gzip, lzma])
def test_zeros_after_a_compressed_stream_are_padding(pack, tmp_path):
    (tmp_path / f"a.{'gz' if pack is gzip else 'xz'}").write_bytes(pack.compress(b"text") + b"\0" * 512)
    assert everything(TextFiles(str(tmp_path))) == b"text"


def test_a_line_without_a_record_is_no_document(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n \n')
    assert everything(TextFiles(str(tmp_path))) == b"one\0two\0"


def test_a_separator_that_no_line_has_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one\n <|end|>\ntwo\n" * 99)
    assert everything(TextFiles(str(tmp_path), separator="<|end|> ")).count(b"\0") == 100
    with pytest.raises(UserError, match="data.separator=<end> is not a line of any file"):
        everything(TextFiles(str(tmp_path), separator="<end>"))


def test_the_documents_of_two_files_are_apart_where_a_file_does_not_end_with_the_separator(tmp_path):
    for name, text in {
        "a": "one\n<|end|>\ntwo\n",
        "b": "three\n<|end|>\nfour",
        "c": "",
        "d": "five\n<|end|>\n",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
    assert everything(TextFiles(str(tmp_path), separator="<|end|>")) == b"one\n\0two\n\0three\n\0four\0five\n\0"


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


def test_a_corpus_on_the_hub_is_known_by_its_name_its_revision_and_its_limit_and_not_by_how_it_is_loaded():
    one = HubHeldOut("a/b", revision="0f")
    assert replace(one, streaming=True).fingerprint() == one.fingerprint()
    others = ({"name": "c"}, {"field": "body"}, {"documents": False}, {"held_out": 9})
    for other in ({"revision": None}, {"revision": "1f"}, {"path": "a/c"}, {"limit": 9}, *others):
        assert replace(one, **other).fingerprint() != one.fingerprint(), other


def test_a_file_compressed_twice_is_refused(tmp_path):
    (tmp_path / "a.txt.gz.xz").write_bytes(lzma.compress(gzip.compress(b"text")))
    with pytest.raises(UserError, match="a.txt.gz.xz has no text files"):
        TextFiles(f"{tmp_path}/a.txt.gz.xz")


def test_links_are_followed_and_every_text_is_read_once(tmp_path):
    texts, other = tmp_path / "texts", tmp_path / "other"
    for folder in (texts, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (texts / "itself").symlink_to(".")
    (texts / "linked").symlink_to(other)
    (texts / "z.txt").symlink_to("a.txt")
    assert everything(TextFiles(str(texts))) == b"textsother"
    with pytest.raises(UserError, match="is a symlink loop: .*/texts/itself links to a folder that contains it"):
        TextFiles(f"{texts}/**/*.txt")
    (texts / "itself").unlink()
    assert everything(TextFiles(f"{texts}/**/*.txt")) == b"textsother"


def test_a_text_that_changes_while_it_is_read_is_not_taken_for_what_it_was(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("before " * 100)
    corpus = TextFiles(str(file))
    corpus.fingerprint()
    file.write_text("behind " * 100)  # as long as before
    os.utime(file, (0, 0))
    with pytest.raises(UserError, match="a.txt changed while"):
        list(corpus.stream("train"))
