"""How convergence is measured: steps to a loss, speed-up over a baseline, and how sure we are.

numpy and scipy only. A curve is two arrays of one length: where it was measured (steps, tokens or seconds, rising), and
the validation loss there. What is never reached is infinite, never a number made up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]

FRACTIONS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the baseline's budget whose loss is a threshold. The last is the headline."""

CONFIDENCE = 0.95

SEEDS_FOR_A_VERDICT = 3
"""Two seeds have an interval, of one degree of freedom: too wide to decide, or narrow by luck."""

WIDEST = 10.0
"""An interval whose ends are further apart than this factor says nothing about a ratio."""


def level_at(step: ArrayLike, loss: ArrayLike, at: float) -> float:
    """The running minimum of a curve at a step, interpolated between measurements; before the first, the first."""
    return float(np.interp(at, np.asarray(step, float), _running_minimum(loss)))


def reached(x: ArrayLike, loss: ArrayLike, level: float) -> float:
    """Where the running minimum first falls to `level`, interpolated between measurements; infinite if it never does.

    Nothing is known before the first measurement: a level above it counts as reached there.
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
        value: the mean, arithmetic or geometric; infinite or 0 where some seed never got there.
        low, high: the interval; None with fewer than two seeds, or where some seed never got there.
        seeds: how many there are.
        missed: in how many of them the level was never reached.
        bootstrap: the percentile bootstrap's interval, for comparison; None like the other.
    """

    value: float
    low: float | None
    high: float | None
    seeds: int
    missed: int = 0
    bootstrap: tuple[float, float] | None = None

    @property
    def determined(self) -> bool:
        """Whether a positive quantity, such as a ratio, is known to a factor of WIDEST."""
        return self.low is not None and self.high is not None and self.low > 0 and self.high <= WIDEST * self.low


def figures_only(estimate: Estimate) -> Estimate:
    """An estimate without its interval where there are too few seeds for one."""
    if estimate.seeds >= SEEDS_FOR_A_VERDICT:
        return estimate
    return Estimate(estimate.value, None, None, estimate.seeds, estimate.missed)


@dataclass(frozen=True)
class Band:
    """Estimates along an axis; where there is no interval, low and high are the value."""

    x: Array
    middle: Array
    low: Array
    high: Array


def band(x: ArrayLike, estimates: Sequence[Estimate]) -> Band:
    """One estimate at each point of x (points,), without intervals that are of too few seeds."""
    columns = [
        (e.value, e.value, e.value) if e.low is None or e.high is None else (e.value, e.low, e.high)
        for e in map(figures_only, estimates)
    ]
    return Band(np.asarray(x, float), *np.array(columns, float).reshape(-1, 3).T)


def mean(values: ArrayLike, share: bool = False) -> Estimate:
    """Arithmetic mean with Student's interval; that of a share ends at 0 and 1."""
    finite = np.asarray(values, float)
    missed = int(np.sum(~np.isfinite(finite)))
    if missed or len(finite) < 2:
        return Estimate(math.inf if missed else float(np.mean(finite)), None, None, len(finite), missed)
    low, high = np.clip(_student(finite), 0, 1) if share else _student(finite)
    return Estimate(float(finite.mean()), float(low), float(high), len(finite))


def speed_up(baseline: Sequence[float], scheme: Sequence[float]) -> Estimate:
    """How many times sooner a scheme arrives: the geometric mean of baseline / scheme over seeds, in pairs.

    The interval is Student's on the logarithms. The percentile bootstrap over 3 to 5 seeds, as usual as it is, covers
    the truth too seldom (`tests/analysis/test_convergence.py` counts); it is kept beside, for whoever expects it.

    Args:
        baseline, scheme: steps, tokens or seconds to one loss, a value a seed, in the same order of seeds; the
            baseline's are finite.
    """
    missed = int(np.sum(~np.isfinite(scheme)))
    if missed:
        return Estimate(0.0, None, None, len(scheme), missed)
    logs = np.log(np.asarray(baseline, float) / np.asarray(scheme, float))
    value = float(np.exp(logs.mean()))
    if len(logs) < 2:
        return Estimate(value, None, None, len(logs))
    low, high = np.exp(_student(logs))
    return Estimate(value, float(low), float(high), len(logs), bootstrap=_bootstrap(logs))


def _student(values: Array) -> tuple[float, float]:
    margin = stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - margin), float(values.mean() + margin)


def _bootstrap(logs: Array) -> tuple[float, float]:
    if np.ptp(logs) == 0:
        return float(np.exp(logs[0])), float(np.exp(logs[0]))
    drawn = stats.bootstrap((logs,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=0)
    low, high = np.exp(drawn.confidence_interval)
    return float(low), float(high)


class Verdict(StrEnum):
    """What an interval of a speed-up says."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "not distinguishable"
    UNDETERMINED = "not determined"
    UNDECIDED = "undecided"
    NONE = "no verdict"


def verdict(speed_up: Estimate) -> Verdict:
    """From the interval alone; there is none with fewer than SEEDS_FOR_A_VERDICT seeds."""
    if speed_up.seeds < SEEDS_FOR_A_VERDICT:
        return Verdict.NONE
    if speed_up.missed == speed_up.seeds:
        return Verdict.SLOWER
    if speed_up.low is None or speed_up.high is None:
        return Verdict.SAME
    if not speed_up.determined:
        return Verdict.UNDETERMINED
    if speed_up.low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if speed_up.high < 1 else Verdict.SAME
