import itertools
import math

import pytest

from posenc.analysis.results import Result
from posenc.analysis.search import expected_best, searches


def trial(pos: str, lr: float, seed: int, loss: float, tokens: int = 100, setting: str = "search") -> Result:
    return Result("text", setting, pos, seed, tokens, lr, "", "", loss, math.nan, 2.5, "commit", "CPU")


def test_a_trial_s_loss_is_the_mean_over_its_seeds_and_the_lowest_comes_first():
    found = searches([trial("rope", 0.003, 100, 1.7), trial("rope", 0.006, 100, 1.5), trial("rope", 0.006, 101, 1.7)])
    assert [(one.lr, one.loss, one.seeds) for one in found[100]["rope"]] == [(0.006, 1.6, 2), (0.003, 1.7, 1)]


def test_searches_at_two_budgets_are_two_searches_and_other_runs_are_in_none():
    found = searches(
        [
            trial("rope", 0.003, 100, 1.7),
            trial("rope", 0.003, 100, 1.2, 400),
            trial("rope", 0.003, 0, 1.0, 100, "backbone"),
        ]
    )
    assert {tokens: [one.loss for one in arms["rope"]] for tokens, arms in found.items()} == {100: [1.7], 400: [1.2]}


def test_the_expected_best_is_the_mean_over_all_draws():
    losses = [2.4, 1.6, 1.9, 1.7, 1.7]
    best = expected_best(losses)
    for k, value in enumerate(best, start=1):
        draws = [min(draw) for draw in itertools.combinations(losses, k)]
        assert value == pytest.approx(sum(draws) / len(draws))
    assert (best[0], best[-1]) == (pytest.approx(1.86), 1.6)
