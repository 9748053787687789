"""A corpus and a tokenizer -> the cached tokens of its splits."""

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from posenc.data.cache import Tokens, open_or_build
from posenc.data.corpora import Corpus, digest
from posenc.data.tokens import Tokenizer, smallest_dtype
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
    _train_once(corpus, tokenizer, cache / f"{title}-{tokenizer.name}-{source}")
    splits = {split: open_split(corpus, tokenizer, cache, title, source, split) for split in IN_WORDS}
    for split, tokens in splits.items():
        if len(tokens) < window:
            raise UserError(
                f"context={context} is too long for this corpus: "
                f"its {IN_WORDS[split]} split has only {len(tokens)} tokens"
            )
    return Prepared(tokenizer, **splits)


def open_split(corpus: Corpus, tokenizer: Tokenizer, cache: Path, title: str, source: str, split: str) -> Tokens:
    """One split as the tokens of a tokenizer that has learnt its vocabulary, from the cache or tokenised anew.

    Args:
        source: the corpus's fingerprint, which may take long to compute.

    Raises:
        UserError: if the corpus is unreadable, or has no text in that split.
    """
    fingerprint = digest(source, tokenizer.fingerprint(), split)
    return open_or_build(
        cache / f"{title}-{tokenizer.name}-{split}-{fingerprint}",
        fingerprint,
        smallest_dtype(tokenizer.vocab_size),
        lambda: tokenizer.encode(_not_empty(corpus.stream(split), split)),
    )


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
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if folder.exists():
            try:
                tokenizer.load(folder)
                return
            except Exception as error:  # the tokenizers library raises bare Exception
                print(f"The tokenizer {folder} is damaged ({error}); it is trained again.", file=sys.stderr)
        tokenizer.train(corpus.stream("train"))
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        tokenizer.save(partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
