"""Text comes whole from every kind of file, and what cannot be read is said in a sentence."""

import codecs
import gzip
import json
import lzma
from contextlib import nullcontext

import pytest

from posenc.data import readers
from posenc.data.corpora import TextFiles
from posenc.data.readers import would_find
from posenc.errors import UserError
from tests.data.texts import EXPECTED, everything, write_jsonl, write_parquet, write_txt


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


def test_a_folder_and_a_glob_read_their_files_in_order_each_as_one_document(tmp_path):
    (tmp_path / ".git").mkdir()
    for name in ("b.txt", "a.txt", "c.md", "d", "e.rst", ".git/f", ".g.txt"):
        (tmp_path / name).write_text(f"{name} " * 30)
    texts = [f"{name} ".encode() * 30 for name in ("a.txt", "b.txt", "c.md", "d")]
    assert everything(TextFiles(f"{tmp_path}/a.txt")) == texts[0]
    assert everything(TextFiles(f"{tmp_path}/*.txt")) == texts[0] + b"\0" + texts[1] + b"\0"
    assert everything(TextFiles(str(tmp_path))) == b"".join(text + b"\0" for text in texts)


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


@pytest.mark.parametrize(
    ("path", "file", "found"),
    [
        ("", ".runs/sample.txt", False),
        ("**/*.txt", ".runs/sample.txt", False),
        ("*/*.txt", ".runs/sample.txt", False),
        (".runs", ".runs/sample.txt", True),
        (".r*/**", ".runs/a/sample.txt", True),
        ("", "runs/.sample.txt", False),
        ("", "cache/tokens.bin", False),
    ],
)
def test_hidden_files_and_files_of_other_kinds_are_part_of_no_text(path, file, found, tmp_path):
    (tmp_path / ".runs").mkdir()
    assert would_find(f"{tmp_path}/{path}", tmp_path / file) == found


@pytest.mark.parametrize(
    ("content", "byte"),
    [
        (b"plain\n" * 300_000 + "caf\xe9".encode("latin-1"), "byte 1800003 is 0xe9"),
        ("plain".encode("utf-16"), "byte 0 is 0xff"),
        ("plain".encode("utf-16-le"), "byte 1 is 0x00"),
        (codecs.BOM_UTF8 + b"plain\xff", "byte 8 is 0xff"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_text_that_is_not_utf_8_is_refused_with_file_and_byte(name, content, byte, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(UserError, match=f"{name} is not UTF-8 text: {byte}; convert it"):
        TextFiles(str(tmp_path)).fingerprint()


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
    with pytest.raises(UserError, match="data.separator=<end> is not a line of any .txt file"):
        everything(TextFiles(str(tmp_path), separator="<end>"))
    (tmp_path / "b.jsonl").write_text('{"text": "a document, which ends as those do that are separated"}\n')
    with pytest.raises(UserError, match=r"data.separator=<end> is not a line of any \.txt file"):
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


def test_a_file_compressed_twice_is_refused(tmp_path):
    (tmp_path / "a.txt.gz.xz").write_bytes(lzma.compress(gzip.compress(b"text")))
    with pytest.raises(UserError, match="a.txt.gz.xz has no text files"):
        TextFiles(f"{tmp_path}/a.txt.gz.xz")


def test_a_text_beside_its_compressed_copy_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text"))
    with pytest.raises(UserError, match=r"has .*a\.txt and .*a\.txt\.gz: remove one"):
        TextFiles(str(tmp_path))
    assert everything(TextFiles(f"{tmp_path}/*.gz")) == b"text"


def test_an_empty_row_of_a_parquet_is_a_document_and_a_missing_one_is_none(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": ["a", "", None, "b"]}), tmp_path / "a.parquet")
    assert everything(TextFiles(f"{tmp_path}/a.parquet")) == b"a\0\0b\0"


def test_links_are_followed_and_every_text_is_read_once(tmp_path):
    texts, other = tmp_path / "texts", tmp_path / "other"
    for folder in (texts, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (texts / "itself").symlink_to(".")
    (texts / "linked").symlink_to(other)
    (texts / "z.txt").symlink_to("a.txt")
    (texts / "y.txt").hardlink_to(texts / "a.txt")
    assert everything(TextFiles(str(texts))) == b"texts\0other\0"
    with pytest.raises(UserError, match="is a symlink loop: .*/texts/itself links to a folder that contains it"):
        TextFiles(f"{texts}/**/*.txt")
    (texts / "itself").unlink()
    assert everything(TextFiles(f"{texts}/**/*.txt")) == b"texts\0other\0"
