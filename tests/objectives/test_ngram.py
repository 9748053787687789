"""The loss that order cannot beat."""

import numpy as np
import pytest

from posenc.objectives.ngram import bigram_loss


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


def test_tokens_without_order_cost_their_plain_entropy():
    tokens = np.random.default_rng(1).integers(8, size=300_000)
    assert bigram_loss(tokens[:250_000], tokens[250_000:].reshape(-1, 50), 8) == pytest.approx(np.log(8), abs=0.01)
