"""A corpus and a tokenizer -> the cached tokens of its splits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posenc.config.schema import check_plain
from posenc.data.cache import built_once
from posenc.data.corpora import Corpus, digest
from posenc.data.tokenizers import Tokenizer, smallest_dtype
from posenc.data.tokens import Tokens, open_or_build
from posenc.errors import UserError

SPLIT_NAMES = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class Prepared:
    """The training and validation tokens."""

    train: Tokens
    valid: Tokens


def prepare(corpus: Corpus, tokenizer: Tokenizer, cache: Path, title: str, context: int, window: int) -> Prepared:
    """Open both splits; trains the tokenizer and tokenises the corpus if they are not cached.

    Args and errors as in `open_split`.
    """
    _load_or_train(corpus, tokenizer, cache / f"{title}-{tokenizer.name}-{corpus.fingerprint()}")
    # The shorter split first: if it is too short, the training split is not tokenised.
    valid, train = (open_split(corpus, tokenizer, cache, title, split, context, window) for split in ("valid", "train"))
    return Prepared(train, valid)


def open_split(
    corpus: Corpus, tokenizer: Tokenizer, cache: Path, title: str, split: str, context: int = 1, window: int = 1
) -> Tokens:
    """Open one split with a trained tokenizer; tokenises it if it is not cached.

    Args:
        cache: the root of all caches.
        title: the name of the corpus, used in folder names.
        context: the model's context length, for error messages.
        window: minimum number of tokens.

    Raises:
        UserError: if the corpus is unreadable, or the split is too short; nothing is cached in that case.
        RunError: if the disk is full, or another I/O error occurs.
    """

    def check_length(count: int) -> None:
        if count < window:
            raise UserError(
                f"context={context} is too long for this corpus: its {SPLIT_NAMES[split]} split has only {count} tokens"
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
        raise UserError(
            f"the corpus has no text in its {SPLIT_NAMES[split]} split: "
            "it is empty, too short to split, or its last document is too long"
        )


def _load_or_train(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Load the tokenizer from the cache, or train and cache it."""

    def train(partial: Path) -> None:
        tokenizer.train(_not_empty(corpus.stream("train"), "train"))
        tokenizer.save(partial)

    notice = f"Training a tokenizer with {tokenizer.vocab_size:,} tokens on the training split."
    built_once(folder, tokenizer.load, train, notice)
