"""N-gram baselines.

A model with uniform attention knows the current token and, at best, a bag of the others. It plateaus at about the loss
of the bigram model, and goes below it only once a head attends by position.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]
Keys = NDArray[np.uint64]
"""n-grams packed into integers, the last token in the lowest bits."""

KEY_BITS = 64
"""Bits into which an n-gram is packed."""

MIN_BIGRAM_TOKENS, MAX_BIGRAM_TOKENS = 4_000_000, 2**26
"""The fewest and the most training tokens on which a run's bigram model is counted; all if there are fewer."""

MIN_TOKENS_PER_PAIR = 20
"""Training tokens required per possible bigram, so that the counts are not too sparse."""

CHUNK = 2**22
"""Training tokens per chunk, whose n-grams take about 100 MB."""

DENSE_BITS = 20
"""n-grams of at most this many bits are counted in an array over all of them, of 8 MB: ten times faster."""


def token_frequencies(train: Ids, vocab_size: int) -> NDArray[np.float64]:
    """Token frequencies with add-one smoothing: (V,), sums to 1."""
    counts = np.ones(vocab_size)
    for start in range(0, len(train), CHUNK):
        counts += np.bincount(train[start : start + CHUNK], minlength=vocab_size)
    return counts / counts.sum()


def bigram_loss(train: Ids, windows: Ids, vocab_size: int) -> float | None:
    """`ngram_losses` of order 2, counted on as many of the first tokens as it needs; None if these are too few."""
    needed = MIN_TOKENS_PER_PAIR * np.count_nonzero(np.bincount(train[:MIN_BIGRAM_TOKENS])) ** 2
    if needed > min(len(train), MAX_BIGRAM_TOKENS):
        return None
    return ngram_losses(train[: max(needed, MIN_BIGRAM_TOKENS)], windows, [2], vocab_size)[2]


def ngram_losses(train: Ids, windows: Ids, orders: Iterable[int], vocab_size: int) -> dict[int, float]:
    """Mean nats per token of interpolated n-gram models with Witten-Bell smoothing (Witten and Bell 1991).

    P_n(w | h) = (c(hw) + T(h) P_{n-1}(w | h')) / (c(h) + T(h)), where h is n - 1 tokens, h' is h without its first, and
    T(h) is the number of distinct tokens that follow h: the larger, the more weight the shorter context gets. P_1 is
    the frequency with add-one smoothing. As for a network, tokens before a window are not visible, so the first tokens
    of a window have a shorter context. Counts are exact, and stored only for contexts that occur in the windows, unless
    those of all n-grams fit into an array.

    Args:
        train: token ids, (tokens,).
        windows: token ids, (windows, T + 1); all but the first of each window are predicted.
        orders: n, each at least 1; 2 is the bigram model.
        vocab_size: V, above every id.

    Raises:
        ValueError: if there is no order, one is below 1, or n tokens do not fit into 64 bits.
    """
    orders = sorted(set(orders))
    bits = max(1, (vocab_size - 1).bit_length())
    if not orders or orders[0] < 1 or orders[-1] * bits > KEY_BITS:
        raise ValueError(
            f"orders={orders} must be at least 1, and at most {KEY_BITS // bits} with a vocabulary of {vocab_size}"
        )
    probs = token_frequencies(train, vocab_size)[windows[:, 1:]]
    losses = {}
    for order in range(1, orders[-1] + 1):
        if 2 <= order <= windows.shape[1]:
            _interpolate(probs[:, order - 2 :], train, _pack(windows, order, bits), order, bits)
        losses[order] = float(-np.log(probs).mean())
    return {order: losses[order] for order in orders}


def _interpolate(probs: NDArray[np.float64], train: Ids, queries: Keys, order: int, bits: int) -> None:
    """Turn P_{n-1} into P_n, in place, for the n-grams `queries`: (windows, targets) each."""
    token_bits = np.uint64(bits)
    if order * bits <= DENSE_BITS:
        grams, counts = _count_all(train, order, bits)
    else:
        grams, counts = _count(train, np.unique(queries >> token_bits), order, bits)
    if not len(grams):
        return
    contexts, first = np.unique(grams >> token_bits, return_index=True)
    totals, distinct = np.add.reduceat(counts, first), np.diff(first, append=len(grams))
    count = _lookup(queries, grams, counts)
    total, followers = (_lookup(queries >> token_bits, contexts, values) for values in (totals, distinct))
    seen = total > 0
    probs[seen] = (count + followers * probs)[seen] / (total + followers)[seen]


def _count_all(train: Ids, order: int, bits: int) -> tuple[Keys, NDArray[np.int64]]:
    """The n-grams of a text, sorted, and their counts."""
    counts = np.zeros(2 ** (order * bits), np.int64)
    for start in range(0, len(train) - order + 1, CHUNK):
        chunk = _pack(train[start : start + CHUNK + order - 1], order, bits)
        counts += np.bincount(chunk.view(np.int64), minlength=len(counts))
    grams = np.flatnonzero(counts)
    return grams.astype(np.uint64), counts[grams]


def _count(train: Ids, contexts: Keys, order: int, bits: int) -> tuple[Keys, NDArray[np.int64]]:
    """The n-grams of a text that begin with one of the sorted contexts, sorted, and their counts."""
    grams, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for start in range(0, len(train) - order + 1, CHUNK):
        chunk = _pack(train[start : start + CHUNK + order - 1], order, bits)
        prefixes = chunk >> np.uint64(bits)
        index = np.minimum(np.searchsorted(contexts, prefixes), len(contexts) - 1)
        new_grams, new_counts = np.unique(chunk[contexts[index] == prefixes], return_counts=True)
        grams, inverse = np.unique(np.concatenate([grams, new_grams]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, new_counts])).astype(np.int64)
    return grams, counts


def _pack(tokens: Ids, order: int, bits: int) -> Keys:
    """Every n-gram in tokens (.., T), packed into an integer -> (.., T - n + 1)."""
    length = tokens.shape[-1] - order + 1
    keys = np.zeros((*tokens.shape[:-1], length), np.uint64)
    for offset in range(order):
        keys = keys << np.uint64(bits) | tokens[..., offset : offset + length].astype(np.uint64)
    return keys


def _lookup(queries: Keys, keys: Keys, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each query in the sorted keys; 0 if it is not there."""
    index = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[index] == queries, values[index], 0)
