"""A corpus and a tokenizer -> the cached tokens of its splits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posenc.config.schema import check_plain
from posenc.data.cache import Tokens, built_once, open_or_build
from posenc.data.corpora import Corpus, digest
from posenc.data.tokenizers import Tokenizer, smallest_dtype
from posenc.errors import UserError

IN_WORDS = {"train": "training", "valid": "validation"}


@dataclass(frozen=True)
class Prepared:
    """Tokens to train on and tokens to validate on, with the tokenizer that made them."""

    tokenizer: Tokenizer
    train: Tokens
    valid: Tokens


def prepare(corpus: Corpus, tokenizer: Tokenizer, cache: Path, title: str, context: int, window: int) -> Prepared:
    """Train the tokenizer if it is new, tokenise what is not cached, and open both splits.

    Args:
        cache: the folder of all caches.
        title: the corpus's name, for the folder's.
        context: tokens a model reads, for the sentence that says it is too long.
        window: tokens that a split must have at least.

    Raises:
        UserError: if the corpus is unreadable, or a split is shorter than a window.
        RunError: if the disk is full, or fails in another way.
    """
    if tokenizer.learns:
        _load_or_train(corpus, tokenizer, cache / f"{title}-{tokenizer.name}-{corpus.fingerprint()}")
    # The shorter one first: where it is too short, nothing has been written.
    valid, train = (open_split(corpus, tokenizer, cache, title, split, context, window) for split in ("valid", "train"))
    return Prepared(tokenizer, train, valid)


def open_split(
    corpus: Corpus, tokenizer: Tokenizer, cache: Path, title: str, split: str, context: int = 1, window: int = 1
) -> Tokens:
    """One split as the tokens of a tokenizer that has learnt its vocabulary, from the cache or tokenised anew.

    Args:
        context: tokens a model reads, for the sentence that says it is too long.
        window: tokens that there must be at least.

    Raises:
        UserError: if the corpus is unreadable, or has too little text in that split; nothing is cached then.
        RunError: if the disk is full, or fails in another way.
    """

    def check_length(count: int) -> None:
        if count < window:
            raise UserError(
                f"context={context} is too long for this corpus: its {IN_WORDS[split]} split has only {count} tokens"
            )

    def encoded() -> Iterator[np.ndarray]:
        count = 0
        for chunk in tokenizer.encode(_not_empty(corpus.stream(split), split)):
            count += len(chunk)
            yield chunk
        check_length(count)

    check_plain("data", title)
    fingerprint = digest(corpus.fingerprint(), tokenizer.fingerprint(), split)
    folder = cache / f"{title}-{tokenizer.name}-{split}-{fingerprint}"
    tokens = open_or_build(folder, fingerprint, smallest_dtype(tokenizer.vocab_size), encoded)
    check_length(len(tokens))
    return tokens


def _not_empty(chunks: Iterable[bytes], split: str) -> Iterator[bytes]:
    empty = True
    for chunk in filter(None, chunks):
        empty = False
        yield chunk
    if empty:
        raise UserError(f"the corpus has no text in its {IN_WORDS[split]} split: it is empty or too short to cut")


def _load_or_train(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Load a tokenizer that was trained on this corpus before, or train it and keep it."""

    def train(partial: Path) -> None:
        tokenizer.train(_not_empty(corpus.stream("train"), "train"))
        tokenizer.save(partial)

    check_plain("data", folder.name)
    built_once(folder, tokenizer.load, train, lambda: "a little")
