"""Steps to a loss, speed-up and its interval."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posenc.analysis.convergence import Estimate, bootstrap, first_reached, level_at, mean, speed_up, verdict

STEPS = np.arange(10.0, 110.0, 10.0)
losses = st.lists(st.floats(0.1, 10), min_size=10, max_size=10)


def test_a_level_between_two_measurements_is_interpolated():
    assert first_reached([10, 20, 30], [3.0, 2.0, 1.0], 1.25) == 27.5
    assert first_reached([10, 20, 30], [3.0, 2.0, 1.0], 2.0) == 20
    assert first_reached([10, 20, 30], [3.0, 2.0, 2.0], 2.0) == 20


def test_a_loss_that_rises_again_changes_nothing():
    assert first_reached([10, 20, 30, 40], [3.0, 2.0, 2.9, 1.0], 2.5) == 15
    assert first_reached([10, 20, 30, 40], [3.0, 2.0, 2.9, 1.0], 1.5) == 35  # from the lowest so far, 2.0 at step 30
    assert level_at([10, 20, 30], [3.0, 2.0, 2.9], 30) == 2.0


def test_a_level_that_is_never_reached_is_not_a_number_of_steps():
    assert first_reached([10, 20], [3.0, 2.0], 1.9) == math.inf


def test_a_level_above_the_first_measurement_counts_as_reached_there():
    assert first_reached([10, 20], [3.0, 2.0], 5.0) == 10


@given(losses, st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_lower_loss_is_never_reached_sooner(loss, one, other):
    low, high = sorted((one, other))
    assert first_reached(STEPS, loss, low) >= first_reached(STEPS, loss, high)


@given(losses, st.floats(10, 100))
def test_the_level_at_a_step_is_reached_by_that_step(loss, step):
    assert first_reached(STEPS, loss, level_at(STEPS, loss, step) + 1e-9) <= step + 1e-6


@given(losses, st.floats(0.1, 10), st.floats(0.5, 4))
def test_a_curve_stretched_in_time_gets_there_later_by_as_much(loss, level, factor):
    assert first_reached(factor * STEPS, loss, level) == pytest.approx(factor * first_reached(STEPS, loss, level))


def test_a_scheme_twice_as_fast_with_every_seed_is_twice_as_fast_without_doubt():
    estimate = speed_up([100, 140, 90], [50, 70, 45])
    assert (estimate.value, estimate.interval) == (pytest.approx(2), pytest.approx((2, 2)))
    assert bootstrap([100, 140, 90], [50, 70, 45]) == pytest.approx((2, 2))


@given(st.lists(st.tuples(st.floats(10, 1000), st.floats(10, 1000)), min_size=3, max_size=8))
def test_the_inverse_comparison_is_the_inverse_speed_up(pairs):
    a, b = zip(*pairs, strict=True)
    forth, back = speed_up(a, b), speed_up(b, a)
    assert forth.value * back.value == pytest.approx(1)
    assert forth.interval is not None
    assert back.interval is not None
    assert forth.interval[0] * back.interval[1] == pytest.approx(1)


def test_the_interval_is_the_one_of_a_t_test():
    baseline, scheme = [300, 290, 310, 280], [100, 120, 90, 110]
    reference = stats.ttest_1samp(np.log(np.divide(baseline, scheme)), 0).confidence_interval(0.95)
    estimate = speed_up(baseline, scheme)
    assert estimate.interval == pytest.approx((math.exp(reference.low), math.exp(reference.high)))


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_covers_the_truth_where_the_bootstrap_does_not(seeds):
    """Ratios drawn around 2 by a log-normal law, a few at a time: how often is 2 in the interval?"""
    drawn = 2 * np.exp(0.2 * np.random.default_rng(seeds).normal(size=(400, seeds)))

    def covered(interval: Callable[[list[float], list[float]], Any]) -> float:
        found = [interval(list(ratios), [1.0] * seeds) for ratios in drawn]
        return float(np.mean([low <= 2 <= high for low, high in found]))

    assert 0.92 <= covered(lambda *steps: speed_up(*steps).interval) <= 0.98
    assert covered(bootstrap) < 0.88


def test_two_seeds_have_no_interval_and_no_verdict():
    estimate = speed_up([100, 100], [50, 50.5])
    assert (estimate.interval, mean([1, 2]).interval) == (None, None)
    assert verdict(estimate) == "no verdict"


def test_a_mean_over_seeds_of_which_one_never_got_there_is_not_a_number():
    estimate = mean([100, math.inf, 120])
    assert (estimate.value, estimate.missed, estimate.interval) == (math.inf, 1, None)
    assert speed_up([100, 100], [50, math.inf]).missed == 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.1, 1.4, "faster"),
        (0.6, 0.9, "slower"),
        (0.9, 1.2, "not distinguishable"),
        (1.0, 1.2, "not distinguishable"),
        (0.8, 1.0, "not distinguishable"),
        (2.0, 20.0, "faster"),
        (0.03, 46.2, "not determined"),
        (1.1, 46.2, "not determined"),
    ],
)
def test_the_verdict_comes_from_the_interval_alone(low, high, expected):
    assert verdict(Estimate(1.05, 3, (low, high))) == expected
