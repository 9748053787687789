"""Numbers and verdicts as a person reads them."""

import math
from collections.abc import Sequence

from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.convergence import Estimate


def interval(estimate: Estimate, digits: int = 3) -> str:
    """2.338 (2.320–2.357), or 2.338 alone where there is no interval."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f}–{estimate.high:.{digits}f})"


def steps(estimate: Estimate) -> str:
    """53, or how many seeds never got there."""
    return _missed(estimate) if estimate.missed else f"{estimate.value:,.0f}"


def steps_interval(estimate: Estimate) -> str:
    """53 (50–56), or how many seeds never got there."""
    if estimate.missed or estimate.low is None or estimate.high is None:
        return steps(estimate)
    return f"{estimate.value:,.0f} ({estimate.low:,.0f}–{estimate.high:,.0f})"


def times(estimate: Estimate) -> str:
    """5.61x (5.20–6.05), or how many seeds never got there."""
    if estimate.missed:
        return _missed(estimate)
    if estimate.low is None or estimate.high is None:
        return f"{_short(estimate.value)}x"
    return f"{_short(estimate.value)}x ({_short(estimate.low)}–{_short(estimate.high)})"


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _missed(estimate: Estimate) -> str:
    every = "" if estimate.missed == estimate.seeds else f" ({estimate.missed} of {estimate.seeds})"
    return f"not reached{every}"


def seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def share(fraction: float) -> str:
    return f"{fraction:.0%}".replace("%", "\u00a0%")  # a space that breaks no line


def against(panel: Panel) -> str:
    """The verdict of a panel in one sentence: every scheme against the baseline's lowest loss."""
    if not panel.rivals:
        return alone(panel)
    where = f"At {panel.title}, against" if panel.title else "Against"
    begun = f", after the first {panel.budget} steps" if panel.provisional else ""
    tuned = ", each scheme at its own best" if panel.tuned else ""
    parts = "; ".join(_rival(arm, panel.one_machine) for arm in panel.rivals)
    level = panel.rivals[0].marks[-1].level
    return f"{where} {panel.baseline}'s lowest loss of {level:.3f}{tuned}{begun}{_over(panel.rivals)}: {parts}."


def _over(rivals: Sequence[Arm]) -> str:
    """What the brackets after it hold; nothing where no rival has an interval."""
    counts = sorted({arm.headline.in_steps.seeds for arm in rivals if arm.headline})
    if counts[-1] < 2:
        return ""
    return f" (95 % intervals over {seeds(counts[0]) if len(counts) == 1 else f'{counts[0]} to {counts[-1]} seeds'})"


def _rival(arm: Arm, one_machine: bool) -> str:
    assert arm.headline is not None
    steps = arm.headline.in_steps
    lost = f" ({arm.diverged} of {len(arm.runs) + arm.diverged} runs diverged)" if arm.diverged else ""
    if steps.low is None or steps.high is None:
        return f"{arm.scheme} is {arm.verdict} from {seeds(steps.seeds)}{lost}, {times(steps)} in steps"
    missed = arm.marks[-1].steps.missed
    level = f"to {arm.headline.level:.3f}, the lowest that both reach"
    if arm.verdict == "slower":
        never = "it never gets there" if missed == steps.seeds else "it does not always get there"
        more = f"it needs {_short(1 / steps.value)} times the steps ({_short(1 / steps.high)}–{_short(1 / steps.low)})"
        return f"{arm.scheme} is slower{lost}: " + (f"{never}; {level}, {more}" if missed else more)
    if arm.verdict == "faster":
        fewer = f"{_short(steps.value)} times fewer steps ({_short(steps.low)}–{_short(steps.high)})"
        return f"{arm.scheme} is faster, with {fewer}{_time(arm.headline.in_seconds) if one_machine else ''}"
    return f"{arm.scheme} is {arm.verdict}{lost}, {times(steps)}" + (f" {level}" if missed else "")


def _time(seconds: Estimate) -> str:
    """What the steps come to in time: fewer but slower steps must not look better than they are."""
    if seconds.low is None or seconds.high is None:
        return ""
    if seconds.low <= 1 <= seconds.high:
        return f", in time not distinguishable ({_short(seconds.low)}–{_short(seconds.high)})"
    if seconds.value >= 1:
        return f" and {_short(seconds.value)} times less time ({_short(seconds.low)}–{_short(seconds.high)})"
    longer = f"{_short(1 / seconds.value)} times the time ({_short(1 / seconds.high)}–{_short(1 / seconds.low)})"
    return f", but takes {longer}"


MANY = 2
"""Panels from which on a reader needs the whole in one sentence first."""


def overall(panels: Sequence[Panel]) -> str:
    """The verdicts of many panels in one sentence; empty where there are few, or nothing is compared."""
    if len(panels) <= MANY:
        return ""
    parts = []
    for scheme in dict.fromkeys(arm.scheme for panel in panels for arm in panel.rivals):
        arms = [arm for panel in panels for arm in panel.rivals if arm.scheme == scheme]
        verdicts = [arm.verdict for arm in arms]
        counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
        told = ", ".join(f"{verdict} in {count}" for verdict, count in counts.items())
        ratios = [arm.headline.in_steps.value for arm in arms if arm.headline and arm.verdict == "faster"]
        span = " to ".join(dict.fromkeys((_short(min(ratios)), _short(max(ratios))))) if ratios else ""
        where = f", with {span} times fewer steps" if span else ""
        where += " where faster" if 0 < len(ratios) < len(arms) else ""
        lost = sum(arm.diverged for arm in arms)
        runs = sum(len(arm.runs) for arm in arms) + lost
        diverged = f" ({lost} of {runs} runs diverged)" if lost else ""
        parts.append(f"{scheme} is {told} of {len(arms)} settings{where}{diverged}")
    begun = "So far, against" if any(panel.provisional for panel in panels) else "Against"
    return f"{begun} {panels[0].baseline}, {'; '.join(parts)}." if parts else ""


def alone(panel: Panel) -> str:
    """What there is to say without a comparison."""
    parts = [f"{arm.scheme} {interval(arm.loss)} ({seeds(len(arm.runs))})" for arm in panel.arms]
    where = f" at {panel.title}" if panel.title else ""
    return f"Validation loss after {panel.budget} steps{where}: {', '.join(parts)}."


def parameters(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.2f}M"


def finite(value: float | None, digits: int = 4) -> str:
    """For a table that a program reads: empty where there is no number."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
