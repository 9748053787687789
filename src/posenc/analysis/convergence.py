"""Measures of convergence: steps to a loss, speed-up over a baseline, and confidence intervals.

A curve is two arrays of equal length: steps, tokens or seconds, increasing, and the validation loss there. A loss that
is never reached has infinite steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]
Interval = tuple[float, float]

FRACTIONS = (0.25, 0.5, 0.75, 1.0)
"""Fractions of the baseline's budget whose loss is a threshold; the last is its lowest loss."""

CONFIDENCE = 0.95

SEEDS_FOR_A_VERDICT = 3
"""With two seeds an interval has one degree of freedom: too wide to decide, or narrow by chance."""

MAX_SPREAD = 10.0
"""A ratio whose interval spans more than this factor is not determined."""


def level_at(step: ArrayLike, loss: ArrayLike, at: float) -> float:
    """The running minimum of a curve at a step, interpolated; before the first measurement, its value."""
    return float(np.interp(at, np.asarray(step, float), _running_minimum(loss)))


def first_reached(x: ArrayLike, loss: ArrayLike, level: float) -> float:
    """Where the running minimum first falls to `level`, interpolated between measurements; infinite if it never does.

    A level above the first measurement counts as reached there.
    """
    x, lowest = np.asarray(x, float), _running_minimum(loss)
    below = np.flatnonzero(lowest <= level)
    if len(below) == 0:
        return math.inf
    first = below[0]
    if first == 0:
        return float(x[0])
    share = (lowest[first - 1] - level) / (lowest[first - 1] - lowest[first])
    return float(x[first - 1] + share * (x[first] - x[first - 1]))


def _running_minimum(loss: ArrayLike) -> Array:
    return np.fmin.accumulate(np.asarray(loss, float))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval.

    Attributes:
        value: the mean, arithmetic or geometric; infinite or 0 if a seed never reached the level.
        seeds: number of seeds.
        interval: None with fewer than SEEDS_FOR_A_VERDICT seeds, or if a seed never reached the level.
        missed: number of seeds that never reached the level.
    """

    value: float
    seeds: int
    interval: Interval | None = None
    missed: int = 0

    @property
    def determined(self) -> bool:
        """Whether the interval of a positive quantity, such as a ratio, spans at most a factor of MAX_SPREAD."""
        return self.interval is not None and 0 < self.interval[1] <= MAX_SPREAD * self.interval[0]


@dataclass(frozen=True)
class Band:
    """Estimates along an axis; low and high are NaN where there is no interval."""

    x: Array
    middle: Array
    low: Array
    high: Array


def band(x: ArrayLike, estimates: Sequence[Estimate]) -> Band:
    """One estimate for each point of x (points,)."""
    columns = [(e.value, *(e.interval or (math.nan, math.nan))) for e in estimates]
    return Band(np.asarray(x, float), *np.array(columns, float).reshape(-1, 3).T)


def mean(values: ArrayLike, share: bool = False) -> Estimate:
    """Arithmetic mean with Student's t interval, clipped to [0, 1] for a share."""
    of_seeds = np.asarray(values, float)
    missed = int(np.sum(~np.isfinite(of_seeds)))
    if missed or len(of_seeds) < SEEDS_FOR_A_VERDICT:
        return Estimate(math.inf if missed else float(np.mean(of_seeds)), len(of_seeds), missed=missed)
    low, high = np.clip(_student(of_seeds), 0, 1) if share else _student(of_seeds)
    return Estimate(float(of_seeds.mean()), len(of_seeds), (float(low), float(high)))


def speed_up(baseline: Sequence[float], scheme: Sequence[float]) -> Estimate:
    """The geometric mean of baseline / scheme over seeds, paired.

    The interval is Student's t on the logarithms.

    Args:
        baseline, scheme: steps, tokens or seconds to a loss, one value per seed, in the same order; the baseline's are
            finite.
    """
    if missed := int(np.sum(~np.isfinite(scheme))):
        return Estimate(0.0, len(scheme), missed=missed)
    logs = mean(np.log(np.divide(baseline, scheme)))
    value = float(np.exp(logs.value))
    if logs.interval is None:
        return Estimate(value, logs.seeds)
    low, high = np.exp(logs.interval)
    return Estimate(value, logs.seeds, (float(low), float(high)))


def bootstrap(baseline: Sequence[float], scheme: Sequence[float]) -> Interval | None:
    """The common percentile bootstrap interval of a speed-up, for comparison; arguments as in `speed_up`.

    Its coverage is too low with 3 to 5 seeds, as `tests/analysis/test_convergence.py` measures. None where a speed-up
    has no interval.
    """
    if len(scheme) < SEEDS_FOR_A_VERDICT or not np.isfinite(scheme).all():
        return None
    logs = np.log(np.divide(baseline, scheme))
    result = stats.bootstrap((logs,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=0)
    low, high = np.exp(result.confidence_interval)
    return float(low), float(high)


def _student(values: Array) -> Interval:
    margin = stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - margin), float(values.mean() + margin)


class Verdict(StrEnum):
    """The verdict on a speed-up."""

    FASTER = "faster"  # the interval is above 1
    SLOWER = "slower"  # below 1
    SAME = "not distinguishable"  # it contains 1
    UNDETERMINED = "not determined"  # a seed never reached the loss, or the interval spans more than MAX_SPREAD
    UNDECIDED = "undecided"  # the arm that would win has diverged runs
    NONE = "no verdict"  # fewer than SEEDS_FOR_A_VERDICT seeds


def verdict(speed_up: Estimate) -> Verdict:
    """Depends on the interval alone; there is none with fewer than SEEDS_FOR_A_VERDICT seeds."""
    if speed_up.seeds < SEEDS_FOR_A_VERDICT:
        return Verdict.NONE
    if speed_up.interval is None or not speed_up.determined:
        return Verdict.UNDETERMINED
    low, high = speed_up.interval
    if low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if high < 1 else Verdict.SAME
