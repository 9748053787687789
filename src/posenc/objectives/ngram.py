"""Baselines that need no network: the losses of n-gram models of a text.

A model whose heads all look everywhere alike knows the present token and, at best, a bag of the others. It comes to
about the loss of the bigram model, and lower only once a head tells where a token stands.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]
Keys = NDArray[np.uint64]
"""n-grams packed into whole numbers, the last token in the lowest bits."""

COUNTED = 4_000_000
"""Training tokens that the bigram model of a run counts at most: enough for bytes, and a second's work."""

SEEN = 20
"""Tokens a pair of those in the text that there must be, so that the bigram model is not starved."""

CHUNK = 2**22
"""Training tokens whose n-grams are held at a time: some 100 MB."""


def frequencies(train: Ids, vocab_size: int) -> NDArray[np.float64]:
    """How often each token occurs in a text, smoothed by one: (V,), sums to 1."""
    counts = np.ones(vocab_size)
    for start in range(0, len(train), CHUNK):
        counts += np.bincount(train[start : start + CHUNK], minlength=vocab_size)
    return counts / counts.sum()


def bigram_loss(train: Ids, windows: Ids, vocab_size: int) -> float | None:
    """`ngram_losses` of order 2, counted on the first COUNTED tokens; None if the text is too thin for it."""
    tokens = train[:COUNTED]
    if len(tokens) < SEEN * len(np.unique(tokens)) ** 2:
        return None
    return ngram_losses(tokens, windows, [2], vocab_size)[2]


def ngram_losses(train: Ids, windows: Ids, orders: Iterable[int], vocab_size: int | None = None) -> dict[int, float]:
    """Mean nats per token of interpolated n-gram models of a text, on windows of another (Witten and Bell 1991).

    P_n(w | h) = (c(hw) + T(h) P_{n-1}(w | h')) / (c(h) + T(h)), where h is n - 1 tokens, h' is h without its first, and
    T(h) is how many different tokens follow h: a context with many leaves more to the shorter one. P_1 is the plain
    frequency, smoothed by one. As for a network, what stands before a window is not known: its first tokens have a
    shorter context. Counts are exact, and only those of contexts that the windows hold are kept.

    Args:
        train: token ids, (tokens,).
        windows: token ids to predict, (windows, T + 1), each but the first of a window.
        orders: n, each at least 1; 2 is the bigram model.
        vocab_size: V; by default one more than the largest id.

    Raises:
        ValueError: if there is no order, one is below 1, or n tokens do not fit into 64 bits.
    """
    orders = sorted(set(orders))
    size = vocab_size or int(max(train.max(), windows.max())) + 1
    bits = max(1, (size - 1).bit_length())
    if not orders or orders[0] < 1 or orders[-1] * bits > 64:
        raise ValueError(f"orders={orders} must be at least 1, and at most {64 // bits} with {size} kinds of tokens")
    chances = frequencies(train, size)[windows[:, 1:]]
    losses = {}
    for order in range(1, orders[-1] + 1):
        if 2 <= order <= windows.shape[1]:
            _sharpen(chances[:, order - 2 :], train, _packed(windows, order, bits), order, bits)
        losses[order] = float(-np.log(chances).mean())
    return {order: losses[order] for order in orders}


def _sharpen(chances: NDArray[np.float64], train: Ids, wanted: Keys, order: int, bits: int) -> None:
    """Make P_n of P_{n-1}, in place, for the n-grams `wanted`: (windows, targets) each."""
    lowest = np.uint64(bits)
    grams, counts = _counted(train, np.unique(wanted >> lowest), order, bits)
    if not len(grams):
        return
    contexts, first = np.unique(grams >> lowest, return_index=True)
    totals, kinds = np.add.reduceat(counts, first), np.diff(first, append=len(grams))
    count = _looked_up(wanted, grams, counts)
    total, kind = (_looked_up(wanted >> lowest, contexts, values) for values in (totals, kinds))
    seen = total > 0
    chances[seen] = (count + kind * chances)[seen] / (total + kind)[seen]


def _counted(train: Ids, contexts: Keys, order: int, bits: int) -> tuple[Keys, NDArray[np.int64]]:
    """The n-grams of a text that begin with one of the sorted contexts, sorted, and how often each occurs."""
    grams, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for start in range(0, len(train) - order + 1, CHUNK):
        here = _packed(train[start : start + CHUNK + order - 1], order, bits)
        asked = here >> np.uint64(bits)
        place = np.minimum(np.searchsorted(contexts, asked), len(contexts) - 1)
        found, times = np.unique(here[contexts[place] == asked], return_counts=True)
        grams, inverse = np.unique(np.concatenate([grams, found]), return_inverse=True)
        merged = np.zeros(len(grams), np.int64)
        np.add.at(merged, inverse, np.concatenate([counts, times]))
        counts = merged
    return grams, counts


def _packed(tokens: Ids, order: int, bits: int) -> Keys:
    """Every n-gram in tokens (.., T), as one number -> (.., T - n + 1)."""
    length = tokens.shape[-1] - order + 1
    keys = np.zeros((*tokens.shape[:-1], length), np.uint64)
    for offset in range(order):
        keys = keys << np.uint64(bits) | tokens[..., offset : offset + length].astype(np.uint64)
    return keys


def _looked_up(wanted: Keys, keys: Keys, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each wanted key; 0 where there is none. Keys are sorted."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
