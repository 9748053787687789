"""Tokens stand for the text, byte for byte."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.data.tokenizers import BytePairs, Bytes, smallest_dtype
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


@given(st.lists(st.text(min_size=1), min_size=1, max_size=300))
def test_documents_encoded_in_parallel_have_the_tokens_of_each_alone(pairs, documents):
    together = np.concatenate(list(pairs.encode(document.encode() for document in documents)))
    assert np.array_equal(together, np.concatenate([encoded(pairs, document.encode()) for document in documents]))


def test_a_chunk_of_many_lines_keeps_every_line(pairs):
    text = "".join(f"{number}\n" for number in range(1000))
    assert pairs.decode(encoded(pairs, text.encode())) == text


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


def test_a_vocabulary_larger_than_the_text_supports_is_refused():
    with pytest.raises(UserError, match="tokenizer.vocab_size=5000 is more than the training text supports: at most"):
        BytePairs(5000).train([TEXT])


@pytest.mark.parametrize(("size", "dtype"), [(256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_tokens_are_kept_in_the_smallest_type(size, dtype):
    assert smallest_dtype(size) == dtype
