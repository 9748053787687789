"""The losses of n-gram models: exact, whatever the length of the text."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.objectives import ngram
from posenc.objectives.ngram import bigram_loss, ngram_losses


def test_a_chain_s_loss_is_its_conditional_entropy():
    """A Markov chain over four tokens, drawn long enough: no predictor from one token does better on average."""
    rng = np.random.default_rng(0)
    table = np.array([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.5, 0.0], [0.9, 0.0, 0.0, 0.1]])
    steps, state = [], 0
    for uniform in rng.random(220_000):
        state = min(int(np.searchsorted(np.cumsum(table[state]), uniform)), 3)
        steps.append(state)
    tokens = np.array(steps)
    stationary = np.bincount(tokens) / len(tokens)
    entropy = -sum(p * stationary[row] * np.log(p) for row in range(4) for p in table[row] if p > 0)
    assert bigram_loss(tokens[:200_000], tokens[200_000:].reshape(-1, 100), 4) == pytest.approx(entropy, abs=0.01)


def test_tokens_and_pairs_that_were_never_seen_cost_a_finite_loss():
    loss = bigram_loss(np.array([0, 1, 0, 1, 0] * 100), np.array([[2, 3, 0, 2]]), 5)
    assert loss is not None
    assert np.isfinite(loss)


def test_a_text_with_too_many_kinds_of_tokens_for_its_length_has_no_table():
    assert bigram_loss(np.arange(1000) % 500, np.array([[2, 3]]), 500) is None


def test_more_kinds_of_tokens_are_counted_on_more_of_the_text(monkeypatch):
    monkeypatch.setattr(ngram, "MIN_BIGRAM_TOKENS", 100)
    tokens = np.random.default_rng(0).integers(20, size=10_000)
    windows = tokens[9000:].reshape(-1, 50)
    assert bigram_loss(tokens, windows, 20) == ngram_losses(tokens[: 20 * 20**2], windows, [2], 20)[2]
    assert bigram_loss(tokens[:7999], windows, 20) is None


def test_tokens_without_order_cost_their_plain_entropy():
    tokens = np.random.default_rng(1).integers(8, size=300_000)
    assert bigram_loss(tokens[:250_000], tokens[250_000:].reshape(-1, 50), 8) == pytest.approx(np.log(8), abs=0.01)


def by_dictionaries(train: list[int], windows: list[list[int]], order: int, vocab_size: int) -> float:
    """The formula, written down: c(hw), c(h) and T(h) from a counter for each length of context."""
    followed: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for length in range(1, order):
        for at in range(length, len(train)):
            followed[tuple(train[at - length : at])][train[at]] += 1

    def chance(token: int, context: tuple[int, ...]) -> float:
        if not context:
            return (train.count(token) + 1) / (len(train) + vocab_size)
        counts, shorter = followed[context], chance(token, context[1:])
        if not counts:
            return shorter
        return (counts[token] + len(counts) * shorter) / (counts.total() + len(counts))

    losses = [
        -np.log(chance(window[at], tuple(window[max(0, at - order + 1) : at])))
        for window in windows
        for at in range(1, len(window))
    ]
    return float(np.mean(losses))


@given(
    train=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    windows=st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=5),
    chunk=st.integers(1, 90),
    dense=st.sampled_from([0, ngram.DENSE_BITS]),
)
def test_losses_of_all_orders_are_those_of_counts_in_dictionaries(train, windows, chunk, dense):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "CHUNK", chunk)
        patch.setattr(ngram, "DENSE_BITS", dense)
        losses = ngram_losses(np.array(train), np.array(windows), range(1, 7), vocab_size=6)
    for order, loss in losses.items():
        assert loss == pytest.approx(by_dictionaries(train, windows, order, 6), rel=1e-9)


def test_chances_of_all_next_tokens_sum_to_one():
    train = np.random.default_rng(0).integers(0, 4, size=500).astype(np.uint8)
    chances = [np.exp(-ngram_losses(train, np.array([[2, token]]), [2], vocab_size=5)[2]) for token in range(5)]
    assert sum(chances) == pytest.approx(1)


def test_a_text_that_a_longer_context_tells_costs_less_with_one():
    """Each token is the one before the last, plus 1: a trigram knows it, a bigram does not."""
    tokens = [0, 3]
    for at in range(2, 40_000):
        tokens.append((tokens[at - 2] + (1 if at % 997 else 5)) % 13)
    text = np.array(tokens, dtype=np.uint8)
    losses = ngram_losses(text[:30_000], text[30_000:].reshape(-1, 100), [1, 2, 3, 4], 256)
    assert losses[3] < 0.1 < losses[2] < losses[1] + 1e-3
    assert losses[4] < 0.1


def test_orders_that_do_not_fit_into_a_key_are_refused():
    with pytest.raises(ValueError, match=r"orders=\[5\] must be at least 1, and at most 4 with a vocabulary of 50257"):
        ngram_losses(np.array([0, 1]), np.array([[0, 1]]), [5], vocab_size=50_257)
    with pytest.raises(ValueError, match=r"orders=\[0, 2\] must be at least 1"):
        ngram_losses(np.array([0, 1]), np.array([[0, 1]]), [2, 0], 2)


def test_pairs_that_need_too_many_tokens_to_count_have_no_table(monkeypatch):
    tokens = np.random.default_rng(0).integers(20, size=10_000)
    for most, counted in ((8000, True), (7999, False)):
        monkeypatch.setattr(ngram, "MAX_BIGRAM_TOKENS", most)
        assert (bigram_loss(tokens, tokens.reshape(-1, 50), 20) is not None) == counted
