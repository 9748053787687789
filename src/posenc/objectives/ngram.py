"""What can be known without order: the loss of a table of which token follows which.

A model whose heads all look everywhere alike knows the present token and, at best, a bag of the others. It comes to
about this loss, and lower only once a head tells where a token stands.
"""

import numpy as np
from numpy.typing import NDArray

COUNTED = 4_000_000
"""Training tokens counted at most: enough for bytes, and a second's work."""


SEEN = 20
"""Tokens a pair of those in the text that there must be, so that the table is not starved."""


def frequencies(train: NDArray[np.integer], vocab_size: int) -> NDArray[np.float64]:
    """How often each token occurs in a text, smoothed by one: (V,), sums to 1."""
    counts = np.bincount(np.asarray(train[:COUNTED], dtype=np.int64), minlength=vocab_size) + 1.0
    return counts / counts.sum()


def bigram_loss(train: NDArray[np.integer], windows: NDArray[np.integer], vocab_size: int) -> float | None:
    """Mean nats per token of the bigram table of a text, on other windows of it; None if the text is too thin for one.

    Counts are smoothed by Witten and Bell's rule (1991): a token that has been followed by many different ones leaves
    more to the plain frequencies, which in turn are smoothed by one.

    Args:
        train: token ids, (tokens,); those after the first COUNTED are left aside.
        windows: token ids to predict, (windows, T + 1), each from the one before it.
        vocab_size: V.
    """
    tokens = np.asarray(train[:COUNTED], dtype=np.int64)
    if len(tokens) < SEEN * len(np.unique(tokens)) ** 2:
        return None
    frequency = frequencies(tokens, vocab_size)
    pairs, counts = np.unique(tokens[:-1] * vocab_size + tokens[1:], return_counts=True)
    followed = np.bincount(pairs // vocab_size, weights=counts, minlength=vocab_size)
    kinds = np.bincount(pairs // vocab_size, minlength=vocab_size)

    before, after = (part.ravel().astype(np.int64) for part in (windows[:, :-1], windows[:, 1:]))
    wanted = before * vocab_size + after
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    count = np.where(pairs[place] == wanted, counts[place], 0)
    seen = followed[before] + kinds[before]
    smoothed = count + kinds[before] * frequency[after]
    probability = np.where(seen > 0, smoothed / np.maximum(seen, 1), frequency[after])
    return float(-np.log(probability).mean())
