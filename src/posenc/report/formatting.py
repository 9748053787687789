"""Formatting of numbers."""

import math
from collections.abc import Callable, Sequence

from posenc.analysis.convergence import Estimate
from posenc.analysis.results import RunRow
from posenc.analysis.search import Trial


def interval(estimate: Estimate | None, digits: int = 3) -> str:
    """2.338 (2.320–2.357), or 2.338 if there is no interval."""
    if estimate is None:
        return "–"
    return f"{estimate.value:.{digits}f}{bounds(estimate, f'{{:.{digits}f}}'.format, '–')}"


def bounds(estimate: Estimate, show: Callable[[float], str] = "{:z.2f}".format, to: str = " to ") -> str:
    """The interval in brackets, after a space; empty if there is none."""
    return f" ({to.join(map(show, estimate.interval))})" if estimate.interval else ""


def difference(estimate: Estimate) -> str:
    """+0.031 (+0.023 to +0.040), or +0.031 if there is no interval."""
    return f"{estimate.value:+z.3f}{bounds(estimate, '{:+z.3f}'.format)}"


def millions(tokens: float) -> str:
    """4.9M."""
    return f"{tokens / 1e6:.1f}M"


def steps(estimate: Estimate) -> str:
    """53, or how many seeds did not reach it."""
    return _missed(estimate) if estimate.missed else f"{estimate.value:,.0f}"


def steps_interval(estimate: Estimate) -> str:
    """53 (50–56), or how many seeds did not reach it."""
    return f"{steps(estimate)}{_if_determined(estimate, '{:,.0f}'.format)}"


def times(estimate: Estimate) -> str:
    """5.61x (5.20–6.05), or how many seeds did not reach it."""
    return _missed(estimate) if estimate.missed else ratio(estimate, "x")


def ratio(estimate: Estimate, unit: str = "") -> str:
    """5.61 (5.20–6.05); instead of an interval that is too wide it says so."""
    return f"{short(estimate.value)}{unit}{_if_determined(estimate, short)}"


def _if_determined(estimate: Estimate, show: Callable[[float], str]) -> str:
    if estimate.interval and not estimate.determined:
        return f" (not determined at {seeds(estimate.seeds)})"
    return bounds(estimate, show, "–")


def short(ratio: float) -> str:
    """5.61, or 12.3 from 10 on."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _missed(estimate: Estimate) -> str:
    every = "" if estimate.missed == estimate.seeds else f" ({estimate.missed} of {estimate.seeds})"
    return f"not reached{every}"


def seeds(count: int) -> str:
    """1 seed, or 3 seeds."""
    return "1 seed" if count == 1 else f"{count} seeds"


def seeds_from(counts: Sequence[int]) -> str:
    """3 seeds, or 3 to 5 seeds."""
    low, high = min(counts), max(counts)
    return seeds(low) if low == high else f"{low} to {high} seeds"


def of(count: int, total: int) -> str:
    """3, or 3 of 5."""
    return str(count) if count == total else f"{count} of {total}"


def share(fraction: float) -> str:
    """25 %, of a fraction."""
    return f"{fraction:.0%}".replace("%", "\u00a0%")  # no-break space


def finite(value: float | None, digits: int = 4) -> str:
    """For CSV files: empty if the value is missing or not finite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def base(value: str) -> str:
    """base 100,000."""
    return f"base {float(value):,.0f}"


def hyperparameters(run: RunRow | Trial) -> str:
    """lr 0.0042, scale 0.1, base 10000; those that the scheme has."""
    known = {"lr": f"{run.lr:g}", "scale": run.scale, "base": run.base}
    return ", ".join(f"{name} {value}" for name, value in known.items() if value)
