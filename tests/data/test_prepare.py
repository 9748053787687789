"""The tokens of a split are those of its own text, tokenizer and cache."""

import pytest

from posenc.data.corpora import TextFiles
from posenc.data.prepare import open_split, prepare
from posenc.data.tokenizers import BytePairs, Bytes
from posenc.errors import UserError


def text(folder, words, end=""):
    """A corpus of 1,000 lines, whose last hundred end otherwise."""
    folder.mkdir()
    (folder / "a.txt").write_text(f"{words}\n" * 900 + f"{end or words}\n" * 100)
    return TextFiles(str(folder))


def test_text_tokenizer_and_split_each_have_a_fingerprint_and_where_they_lie_has_none(tmp_path):
    """Batches are drawn by it."""
    one, same, other = (text(tmp_path / name, words) for name, words in (("a", "x y"), ("b", "x y"), ("c", "x z")))

    def prints(corpus, tokenizer, cache="cache"):
        found = prepare(corpus, tokenizer, tmp_path / cache, "text", 9, 10)
        return [found.train.fingerprint, found.valid.fingerprint]

    found = [*prints(one, Bytes()), *prints(one, BytePairs(258)), *prints(other, Bytes())]
    assert len(set(found)) == 6
    assert prints(same, Bytes(), "elsewhere") == found[:2]


def test_a_vocabulary_is_that_of_the_corpus_and_of_its_training_split_alone(tmp_path):
    for name, words in (("a", "in the beginning"), ("b", "and the earth")):
        corpus, tokenizer, alone = text(tmp_path / name, words, end="zzzz" * 99), BytePairs(262), BytePairs(262)
        prepare(corpus, tokenizer, tmp_path / "cache", "text", 9, 10)
        alone.train(corpus.stream("train"))
        assert tokenizer.fingerprint() == alone.fingerprint()


@pytest.mark.parametrize(("split", "name"), [("valid", "validation"), ("test", "test")])
def test_a_split_is_long_enough_for_its_one_window_and_too_short_for_a_longer_one(tmp_path, split, name):
    corpus = text(tmp_path / "a", "x")
    size = len(open_split(corpus, Bytes(), tmp_path, "text", split))
    assert len(open_split(corpus, Bytes(), tmp_path, "text", split, size - 1, size)) == size
    with pytest.raises(UserError, match=f"context={size} is too long .* its {name} split has only {size} tokens"):
        open_split(corpus, Bytes(), tmp_path, "text", split, size, size + 1)


def test_the_name_of_a_corpus_leads_out_of_no_cache(tmp_path):
    with pytest.raises(UserError, match=r"data=\.\./x must be a plain folder name"):
        open_split(text(tmp_path / "a", "x"), Bytes(), tmp_path / "cache", "../x", "valid")


def test_of_a_corpus_whose_validation_split_is_too_short_nothing_is_cached(tmp_path):
    with pytest.raises(UserError, match="validation split has only 200 tokens"):
        prepare(text(tmp_path / "a", "x y"), Bytes(), tmp_path / "cache", "text", 999, 1000)
    assert not list(tmp_path.rglob("tokens.bin"))
