"""An arm of a comparison: the runs of one scheme, and their speed-up over the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from posenc.analysis import convergence
from posenc.analysis.convergence import FRACTIONS, Array, Band, Estimate, Interval, Verdict
from posenc.analysis.runs import AXES, MEASURES, Run
from posenc.storage.metrics import METRICS

Curves = Sequence[Mapping[str, Array]]
"""The curves of one scheme, one for each seed."""

LEVELS = 60
"""Number of losses at which the speed-up is plotted."""


@dataclass(frozen=True)
class Threshold:
    """Steps and speed-up of a scheme to one of the baseline's losses.

    Attributes:
        fraction: of the budget, at which the baseline reaches that loss.
        level: the baseline's loss there, mean over seeds; each seed is compared with its own.
        steps: to that loss.
        in_steps, in_seconds: speed-up over the baseline; in tokens it is that in steps, since batches are alike.
        bootstrap: another interval of `in_steps`, for comparison.
    """

    fraction: float
    level: float
    steps: Estimate
    in_steps: Estimate
    in_seconds: Estimate
    bootstrap: Interval | None


@dataclass(frozen=True)
class Arm:
    """One scheme of a panel.

    Attributes:
        runs: one per seed, truncated to the panel's budget.
        thresholds: one for each of FRACTIONS; empty without a baseline.
        headline: at the lowest loss that both this scheme and the baseline reach; None without a baseline. For a faster
            scheme it equals the last threshold; for a slower one it is still finite.
        speed_ups: in steps over the baseline, by loss, as far as every seed reaches it. None for the baseline.
        diverged: number of runs excluded because their loss is NaN, or at least DIVERGED.
        baseline_diverged: the same of the baseline.
    """

    scheme: str
    runs: tuple[Run, ...]
    thresholds: tuple[Threshold, ...] = ()
    headline: Threshold | None = None
    speed_ups: Band | None = None
    diverged: int = 0
    baseline_diverged: int = 0

    @cached_property
    def loss(self) -> Estimate:
        """The last validation loss, nats per token."""
        return convergence.mean([run.last_loss for run in self.runs])

    @cached_property
    def bits(self) -> Estimate | None:
        """The last validation loss in bits per byte; None if a run has none (unfinished, masked, a loss of 0)."""
        # The summary has the bits of its last loss; for a truncated run they are scaled with the loss.
        bits = [
            run.last_loss * run.summary["bits_per_byte"] / run.summary["val_loss"]
            for run in self.runs
            if "bits_per_byte" in run.summary and run.summary["val_loss"]
        ]
        return convergence.mean(bits) if len(bits) == len(self.runs) else None

    @property
    def parameters(self) -> int | None:
        """The model's number of parameters; None while no run is finished."""
        return next((run.summary["parameters"] for run in self.runs if run.finished), None)

    @property
    def tokens_per_s(self) -> float | None:
        """Median over runs; None while no run is finished."""
        speeds = [run.summary["tokens_per_s"] for run in self.runs if run.finished]
        return float(np.median(speeds)) if speeds else None

    @cached_property
    def bands(self) -> Mapping[str, Mapping[str, Band]]:
        """Each of MEASURES over each of AXES: mean over seeds at the steps that all seeds have."""
        return {measure: _over_axes(self.runs, measure) for measure in MEASURES}

    @property
    def verdict(self) -> Verdict | None:
        """None without a baseline. The arm of the two that has diverged runs does not win by the remaining ones."""
        if self.headline is None:
            return None
        verdict = convergence.verdict(self.headline.in_steps)
        winner_diverged = {Verdict.FASTER: self.diverged, Verdict.SLOWER: self.baseline_diverged}
        return Verdict.UNDECIDED if winner_diverged.get(verdict) else verdict

    @property
    def started(self) -> int:
        """Number of runs, including diverged ones."""
        return len(self.runs) + self.diverged


def _over_axes(runs: Sequence[Run], measure: str) -> dict[str, Band]:
    steps = sorted(set.intersection(*({int(step) for step in run.curve["step"]} for run in runs)))
    rows = [np.isin(run.curve["step"], steps) for run in runs]
    values = np.stack([run.curve[measure][row] for run, row in zip(runs, rows, strict=True)])
    known = np.isfinite(values).all(axis=0)
    axes = {axis: np.stack([run.curve[axis][row] for run, row in zip(runs, rows, strict=True)]) for axis in AXES}
    over_steps = convergence.band(
        axes["step"].mean(0)[known], [convergence.mean(column, METRICS[measure].share) for column in values[:, known].T]
    )
    return {axis: replace(over_steps, x=every.mean(0)[known]) for axis, every in axes.items()}


def build_arm(
    scheme: str, runs: Sequence[Run], baseline: Sequence[Run], budget: int, diverged: int, baseline_diverged: int = 0
) -> Arm:
    """An arm with its speed-up over the baseline, for the seeds that both have."""
    theirs, ours = _paired(baseline, runs)
    if not ours:
        return Arm(scheme, tuple(runs), diverged=diverged)
    lowest = list(map(max, _losses(theirs, budget), _losses(ours, budget)))
    return Arm(
        scheme,
        tuple(runs),
        tuple(thresholds(runs, baseline, budget, FRACTIONS)),
        _threshold(1.0, lowest, theirs, ours),
        None if scheme == baseline[0].scheme else _speed_ups(theirs, ours, _common_levels(baseline, budget)),
        diverged,
        baseline_diverged,
    )


def thresholds(
    runs: Sequence[Run], baseline: Sequence[Run], budget: int, fractions: Sequence[float]
) -> list[Threshold]:
    """Thresholds at the baseline's loss after fractions of the budget, seed by seed."""
    theirs, ours = _paired(baseline, runs)
    return [_threshold(fraction, _losses(theirs, fraction * budget), theirs, ours) for fraction in fractions]


def _paired(baseline: Sequence[Run], runs: Sequence[Run]) -> tuple[Curves, Curves]:
    """The baseline's curves and the scheme's, for the seeds that both have, in the same order."""
    theirs = {run.seed: run.curve for run in baseline}
    shared = [run for run in runs if run.seed in theirs]
    return [theirs[run.seed] for run in shared], [run.curve for run in shared]


def _losses(curves: Curves, step: float) -> list[float]:
    """The lowest loss up to a step, seed by seed."""
    return [convergence.level_at(curve["step"], curve["val_loss"], step) for curve in curves]


def _reached(curves: Curves, axis: str, levels: Sequence[float]) -> list[float]:
    """Steps or seconds to a loss for each seed."""
    pairs = zip(curves, levels, strict=True)
    return [convergence.first_reached(curve[axis], curve["val_loss"], level) for curve, level in pairs]


def _threshold(fraction: float, levels: Sequence[float], theirs: Curves, ours: Curves) -> Threshold:
    their_steps, our_steps = _reached(theirs, "step", levels), _reached(ours, "step", levels)
    return Threshold(
        fraction,
        level=float(np.mean(levels)),
        steps=convergence.mean(our_steps),
        in_steps=convergence.speed_up(their_steps, our_steps),
        in_seconds=convergence.speed_up(_reached(theirs, "seconds", levels), _reached(ours, "seconds", levels)),
        bootstrap=convergence.bootstrap(their_steps, our_steps),
    )


def _speed_ups(theirs: Curves, ours: Curves, losses: Sequence[float]) -> Band:
    """Speed-up at losses that are the same for every seed; intervals that are too wide are dropped."""
    same = [[loss] * len(ours) for loss in losses]
    estimates = [
        convergence.speed_up(_reached(theirs, "step", levels), _reached(ours, "step", levels)) for levels in same
    ]
    kept = [(level, e) for level, e in zip(losses, estimates, strict=True) if not e.missed]
    shown = [e if e.determined else replace(e, interval=None) for _, e in kept]
    return convergence.band([level for level, _ in kept], shown)


def _common_levels(baseline: Sequence[Run], budget: int) -> list[float]:
    """The baseline's mean loss from a tenth of the budget on, down to the lowest level that all its seeds reach."""
    end = max(float(np.min(run.curve["val_loss"])) for run in baseline)
    curves = [run.curve for run in baseline]
    means = [float(np.mean(_losses(curves, step))) for step in np.linspace(budget / 10, budget, LEVELS)]
    return [*(level for level in means if level > end), end]
