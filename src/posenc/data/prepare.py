"""A corpus and a tokenizer -> the cached tokens of its splits."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posenc.config.schema import check_plain
from posenc.data.cache import Tokens, open_or_build
from posenc.data.corpora import Corpus, digest
from posenc.data.folders import one_builder, whole_folder
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
    """
    source = corpus.fingerprint()
    if tokenizer.learns:
        _train_once(corpus, tokenizer, cache / f"{title}-{tokenizer.name}-{source}")
    # The shorter one first: where it is too short, nothing has been written.
    valid, train = (
        open_split(corpus, tokenizer, cache, title, source, split, context, window) for split in ("valid", "train")
    )
    return Prepared(tokenizer, train, valid)


def open_split(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache: Path,
    title: str,
    source: str,
    split: str,
    context: int = 1,
    window: int = 1,
) -> Tokens:
    """One split as the tokens of a tokenizer that has learnt its vocabulary, from the cache or tokenised anew.

    Args:
        source: the corpus's fingerprint, which may take long to compute.
        context: tokens a model reads, for the sentence that says it is too long.
        window: tokens that there must be at least.

    Raises:
        UserError: if the corpus is unreadable, or has too little text in that split; nothing is cached then.
        RunError: if the disk is full.
    """
    fingerprint = digest(source, tokenizer.fingerprint(), split)

    def long_enough(count: int) -> None:
        if count < window:
            raise UserError(
                f"context={context} is too long for this corpus: its {IN_WORDS[split]} split has only {count} tokens"
            )

    def encoded() -> Iterator[np.ndarray]:
        count = 0
        for chunk in tokenizer.encode(_not_empty(corpus.stream(split), split)):
            count += len(chunk)
            yield chunk
        long_enough(count)

    check_plain("data", title)
    folder = cache / f"{title}-{tokenizer.name}-{split}-{fingerprint}"
    tokens = open_or_build(folder, fingerprint, smallest_dtype(tokenizer.vocab_size), encoded)
    long_enough(len(tokens))
    return tokens


def _not_empty(chunks: Iterable[bytes], split: str) -> Iterable[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if chunk:
            yield chunk
    if size == 0:
        raise UserError(f"the corpus has no text in its {IN_WORDS[split]} split: it is empty or too short to cut")


def _train_once(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Load a tokenizer that was trained on this corpus before, or train it and keep it, whole or not at all."""
    check_plain("data", folder.name)
    if _loaded(tokenizer, folder):
        return
    with one_builder(folder):
        if _loaded(tokenizer, folder):
            return
        if folder.exists():
            print(f"The tokenizer {folder} is damaged; it is trained again.", file=sys.stderr)
        tokenizer.train(_not_empty(corpus.stream("train"), "train"))
        with whole_folder(folder, lambda: "a little") as partial:
            tokenizer.save(partial)


def _loaded(tokenizer: Tokenizer, folder: Path) -> bool:
    try:
        tokenizer.load(folder)
    except (OSError, UserError):
        return False
    return True
