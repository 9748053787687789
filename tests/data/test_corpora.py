"""A text is cut into its splits without loss, and known by what it says, wherever and however it is stored."""

import gzip
import json
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posenc.data.corpora import SPLITS, KingJamesBible, TextFiles, cut_stream
from posenc.errors import UserError
from tests.data.texts import DOCUMENTS, EXPECTED, everything, write_jsonl, write_parquet, write_txt


@pytest.mark.parametrize("write", [write_txt, write_jsonl, write_parquet])
def test_splits_are_cut_between_documents_at_90_and_95_percent(write, tmp_path):
    corpus = TextFiles(str(write(tmp_path)), separator="<|end|>")
    train, valid, test = (b"".join(corpus.stream(split)) for split in SPLITS)
    assert train + valid + test == EXPECTED
    assert [part.count(b"\0") for part in (train, valid, test)] == pytest.approx([180, 10, 10], abs=1)
    assert train.endswith(b"\0")
    assert valid.endswith(b"\0")


@pytest.mark.parametrize(
    ("line", "count", "mark"), [("a line", 20, b"\n"), ("two words ", 19, b" "), ("word", 19, b"")]
)
def test_a_text_of_fewer_than_20_lines_is_cut_between_words_or_characters(line, count, mark, tmp_path):
    (tmp_path / "a.txt").write_text(f"{line}\n" * count)
    assert TextFiles(str(tmp_path)).survey.mark == mark


def test_a_text_without_spaces_is_cut_between_characters(tmp_path):
    (tmp_path / "a.txt").write_text("東京" * 1001)
    parts = [b"".join(TextFiles(str(tmp_path)).stream(split)).decode() for split in SPLITS]
    assert "".join(parts) == "東京" * 1001
    assert [len(part) for part in parts] == pytest.approx([1802, 100, 100], abs=1)


@example([b"a\0", b"b\0"], [2])  # a document, and with it a chunk, that ends at the cut
@given(
    st.lists(st.text("aé\0", max_size=9).map(str.encode), max_size=9),
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


def test_documents_are_in_the_same_splits_however_they_are_stored(tmp_path):
    """39 documents of 9 bytes: 90 % are 315.9 bytes, and the 35th ends at byte 315."""
    for number in range(39):
        (tmp_path / f"{number:02}.txt").write_text("12345678")
    (tmp_path / "all.jsonl").write_text('{"text": "12345678"}\n' * 39)
    files, lines = TextFiles(f"{tmp_path}/*.txt"), TextFiles(f"{tmp_path}/all.jsonl")
    assert files.fingerprint() == lines.fingerprint()
    for corpus in (files, lines):
        assert [len(b"".join(corpus.stream(split))) for split in SPLITS] == [315, 18, 18]


def test_the_bible_is_whole():
    text = everything(KingJamesBible())
    assert text.startswith(b"In the beginning God created the heaven and the earth.")
    assert text.endswith(b"Amen.")
    assert len(text) > 4_100_000


def test_equal_text_has_an_equal_fingerprint_wherever_it_lies(tmp_path):
    (tmp_path / "x").mkdir()
    one, other = write_txt(tmp_path), write_txt(tmp_path / "x")
    fingerprint = TextFiles(str(one)).fingerprint()
    assert fingerprint == TextFiles(str(other)).fingerprint()
    other.write_text(other.read_text().replace("Document 7", "Document 8"))
    assert fingerprint != TextFiles(str(other)).fingerprint()
    assert fingerprint != TextFiles(str(one), separator="<|end|>").fingerprint()


def test_the_same_text_has_the_same_fingerprint_in_every_format_and_under_every_field(tmp_path):
    plain = tmp_path / "a.txt"
    plain.write_text("".join(f"{text}\n<|end|>\n" for text in DOCUMENTS))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"body": text + "\n"}) + "\n" for text in DOCUMENTS))
    corpora = [TextFiles(str(tmp_path / name), "body", "<|end|>") for name in ("a.txt", "b.txt.gz", "c.jsonl")]
    assert (
        len({corpus.fingerprint() for corpus in corpora} | {TextFiles(str(write_parquet(tmp_path))).fingerprint()}) == 1
    )


def test_a_text_that_changes_while_it_is_read_is_not_taken_for_what_it_was(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("before " * 100)
    corpus = TextFiles(str(file))
    corpus.fingerprint()
    file.write_text("behind " * 100)  # as long as before
    os.utime(file, (0, 0))
    with pytest.raises(UserError, match="a.txt changed while"):
        list(corpus.stream("train"))
