"""Formatting of numbers."""

import math

from posenc.analysis.convergence import Estimate


def interval(estimate: Estimate | None, digits: int = 3) -> str:
    """2.338 (2.320–2.357), or 2.338 if there is no interval."""
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f}–{estimate.high:.{digits}f})"


def difference(estimate: Estimate, digits: int = 3) -> str:
    """+0.031 (+0.023 to +0.040), or +0.031 if there is no interval."""
    value = f"{estimate.value:+.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({estimate.low:+.{digits}f} to {estimate.high:+.{digits}f})"


def steps(estimate: Estimate) -> str:
    """53, or how many seeds did not reach it."""
    return _missed(estimate) if estimate.missed else f"{estimate.value:,.0f}"


def steps_interval(estimate: Estimate) -> str:
    """53 (50–56), or how many seeds did not reach it."""
    if estimate.missed or estimate.low is None or estimate.high is None:
        return steps(estimate)
    if not estimate.determined:
        return f"{steps(estimate)} ({undetermined(estimate)})"
    return f"{estimate.value:,.0f} ({estimate.low:,.0f}–{estimate.high:,.0f})"


def times(estimate: Estimate) -> str:
    """5.61x (5.20–6.05), or how many seeds did not reach it."""
    return _missed(estimate) if estimate.missed else ratio(estimate, "x")


def ratio(estimate: Estimate, unit: str = "") -> str:
    """5.61 (5.20–6.05); an interval that is too wide is not printed."""
    value = f"{short(estimate.value)}{unit}"
    if estimate.low is None or estimate.high is None:
        return value
    if not estimate.determined:
        return f"{value} ({undetermined(estimate)})"
    return f"{value} ({short(estimate.low)}–{short(estimate.high)})"


def undetermined(estimate: Estimate) -> str:
    return f"not determined at {seeds(estimate.seeds)}"


def short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _missed(estimate: Estimate) -> str:
    every = "" if estimate.missed == estimate.seeds else f" ({estimate.missed} of {estimate.seeds})"
    return f"not reached{every}"


def seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def seeds_from(counts: list[int]) -> str:
    """3 seeds, or 3 to 5 seeds."""
    low, high = min(counts), max(counts)
    return seeds(low) if low == high else f"{low} to {high} seeds"


def of(count: int, total: int) -> str:
    """3, or 3 of 5."""
    return str(count) if count == total else f"{count} of {total}"


def share(fraction: float) -> str:
    return f"{fraction:.0%}".replace("%", "\u00a0%")  # no-break space


def parameters(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.2f}M"


def finite(value: float | None, digits: int = 4) -> str:
    """For CSV files: empty if the value is missing or not finite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
