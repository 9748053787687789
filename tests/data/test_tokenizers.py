"""Tokens stand for the text, byte for byte."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.data import tokenizers
from posenc.data.tokenizers import PIECE, BytePairs, Bytes, _pieces, smallest_dtype
from posenc.errors import UserError

TEXT = ("In the beginning God created the heaven and the earth. été 東京\n" * 50 + "\0").encode()


@pytest.fixture(scope="module")
def pairs() -> BytePairs:
    tokenizer = BytePairs(300)
    tokenizer.train([TEXT])
    return tokenizer


def encoded(tokenizer, text: bytes) -> np.ndarray:
    return np.concatenate(list(tokenizer.encode([text])))


@given(st.text(min_size=1))
def test_text_survives_bytes(text):
    assert Bytes().decode(encoded(Bytes(), text.encode())) == text


@given(st.text(min_size=1))
def test_text_survives_byte_pairs_and_every_byte_is_counted(pairs, text):
    tokens = encoded(pairs, text.encode())
    assert pairs.decode(tokens) == text
    assert pairs.byte_lengths()[tokens].sum() == len(text.encode())


@given(st.lists(st.text().map(lambda text: f"{text}\0".encode()), min_size=1, max_size=300))
def test_documents_encoded_in_parallel_have_the_tokens_of_each_alone(pairs, documents):
    together = np.concatenate(list(pairs.encode(documents)))
    assert np.array_equal(together, np.concatenate([encoded(pairs, document) for document in documents]))


@given(st.text("a é東\n\0", min_size=1), st.integers(1, 99), st.lists(st.integers(0, 500_000), max_size=9).map(sorted))
def test_tokens_and_vocabulary_depend_on_the_text_and_not_on_its_chunks(part, times, cuts):
    text = part * (1000 * times // len(part) + 1)
    ends = [0, *(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[first:end].encode() for first, end in itertools.pairwise(ends)]
    pieces = list(_pieces(chunks))
    assert pieces == list(_pieces([text.encode()]))
    assert "".join(pieces) == text
    assert max(len(piece.encode()) for piece in pieces) <= 2 * PIECE


def test_a_piece_ends_after_a_document_or_a_line_and_else_before_a_word():
    long = "a" * PIECE
    assert next(_pieces([f"{long} b\nc\0d{long}".encode()])) == f"{long} b\nc\0"
    assert next(_pieces([f"{long} b\nc{long}".encode()])) == f"{long} b\n"
    assert next(_pieces([f"{long} b{long}".encode()])) == long
    assert next(_pieces([("b" + "é" * PIECE).encode()])) == "b" + "é" * (PIECE // 2)


def test_no_token_but_the_end_of_a_document_contains_it():
    tokenizer = BytePairs(270)
    tokenizer.train([b"x.!\0. y\0" * 99 + b" abcdefghijklmnop" * 9])
    vocabulary = json.loads(tokenizer.to_json())["model"]["vocab"]
    assert [token for token in vocabulary if "Ā" in token] == ["Ā"]  # the byte 0 in byte-level BPE


def test_the_end_of_a_document_is_a_token_of_its_own_whatever_is_before_it():
    tokenizer = BytePairs(258)
    tokenizer.train([b"x.!\0" * 99])
    assert encoded(tokenizer, b"x.!\0")[-1] == encoded(tokenizer, b"\0")


def test_an_empty_row_of_a_corpus_is_no_token(tmp_path):
    from posenc.data.corpora import HubSplits
    from posenc.data.prepare import prepare

    class Rows(HubSplits):
        def rows(self, split):  # noqa: ARG002
            return iter([b"", TEXT, b"", TEXT])

    tokenizer = BytePairs(300)
    prepared = prepare(Rows("local"), tokenizer, tmp_path, "rows", 9, 10)
    assert tokenizer.decode(prepared.valid.ids).encode() == TEXT * 2


def test_byte_pairs_compress(pairs):
    assert len(encoded(pairs, TEXT)) < 0.6 * len(TEXT)
    assert len(pairs.byte_lengths()) == pairs.vocab_size == 300


def test_a_saved_tokenizer_is_the_same(pairs, tmp_path):
    pairs.save(tmp_path)
    again = BytePairs(300)
    again.load(tmp_path)
    assert np.array_equal(encoded(again, TEXT), encoded(pairs, TEXT))
    assert again.fingerprint() == pairs.fingerprint()


def test_a_folder_with_another_vocabulary_is_refused(pairs, tmp_path):
    """A run must not resume with tokens other than those it began with."""
    pairs.check(tmp_path)  # nothing is there yet
    pairs.save(tmp_path)
    pairs.check(tmp_path)
    other = BytePairs(300)
    other.train([TEXT.swapcase() + b"and nothing of this is said again"])
    with pytest.raises(UserError, match=r"tokenizer.json differs from the vocabulary of the cached tokens"):
        other.check(tmp_path)


def test_tokens_that_are_not_numbered_one_by_one_are_refused(pairs, tmp_path):
    pairs.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] = 100_000
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="its tokens are not numbered from 0 to 299"):
        BytePairs(300).load(tmp_path)


def test_the_merges_of_a_large_text_are_learned_from_its_first_pieces(monkeypatch):
    monkeypatch.setattr(tokenizers, "TRAINED_ON", 1)
    first, rest = (b"abcdef " * PIECE)[: 2 * PIECE], b"uvwxyz " * PIECE
    short, long = BytePairs(260), BytePairs(260)
    short.train([first])
    long.train([first + rest])
    assert short.fingerprint() == long.fingerprint()


def test_a_vocabulary_larger_than_the_text_supports_is_refused():
    with pytest.raises(UserError, match="tokenizer.vocab_size=5000 is more than the training text supports: at most"):
        BytePairs(5000).train([TEXT])


@pytest.mark.parametrize(("size", "dtype"), [(256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_tokens_are_kept_in_the_smallest_type(size, dtype):
    assert smallest_dtype(size) == dtype
