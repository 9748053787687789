"""Runs side by side: which may be compared, and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posenc.analysis import convergence, fairness
from posenc.analysis.convergence import FRACTIONS, Estimate
from posenc.analysis.runs import Run, Sweep
from posenc.errors import UserError

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Two curves of one seed: the baseline's and a scheme's."""

EARLY = 4
"""Validations that unfinished runs must have behind them to be compared."""


@dataclass(frozen=True)
class Mark:
    """What a scheme needs to one of the baseline's losses.

    Attributes:
        fraction: of the budget, at which the baseline has that loss.
        level: the baseline's loss there, mean over seeds; each seed is held against its own.
        steps: to that loss.
        in_steps, in_seconds: speed-up over the baseline; tokens go with the steps, since every batch is alike.
    """

    fraction: float
    level: float
    steps: Estimate
    in_steps: Estimate
    in_seconds: Estimate


@dataclass(frozen=True)
class Arm:
    """One scheme of a panel: its runs and what they come to.

    Attributes:
        scheme: its name.
        runs: one a seed, cut to the panel's budget.
        loss, bits: the last validation loss in nats per token and in bits per byte.
        parameters: of the model; None while no run is finished.
        tokens_per_s: median over runs; None while no run is finished.
        marks: one for each of FRACTIONS; empty where there is nothing to compare with.
        headline: at the last loss that both this scheme and the baseline reach; None where there is no baseline. For
            a faster scheme it is the last of the marks; for a slower one it is still a number.
        diverged: runs left out because their loss is not a number.
    """

    scheme: str
    runs: tuple[Run, ...]
    loss: Estimate
    bits: Estimate | None
    parameters: int | None
    tokens_per_s: float | None
    marks: tuple[Mark, ...] = ()
    headline: Mark | None = None
    diverged: int = 0

    @property
    def verdict(self) -> str:
        """Faster, slower, not distinguishable or undecided; empty where there is no baseline.

        A scheme that lost runs is not called faster for the rest of them.
        """
        verdict = convergence.judge(self.headline.in_steps) if self.headline else ""
        return "undecided" if self.diverged and verdict == "faster" else verdict

    @property
    def seeds(self) -> str:
        """How many, of how many that were begun."""
        return f"{len(self.runs)} of {len(self.runs) + self.diverged}" if self.diverged else str(len(self.runs))


@dataclass(frozen=True)
class Panel:
    """The runs of one setting.

    Attributes:
        setting: the values that set this panel apart, empty if there is only one.
        baseline: the scheme the others are held against.
        budget: steps compared.
        provisional: whether that is less than the runs are to be trained for.
        arms: the schemes.
        tuned: whether a search chose each scheme's own hyperparameters: the comparison is of best against best.
        chosen: what it chose, by key and scheme.
        one_machine: whether seconds may be compared.
        notices: what a reader must know, a sentence each.
    """

    setting: Mapping[str, Any]
    baseline: str
    budget: int
    provisional: bool
    arms: tuple[Arm, ...]
    tuned: bool
    chosen: Mapping[str, Mapping[str, Any]]
    one_machine: bool
    notices: tuple[str, ...]

    @property
    def title(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.setting.items())

    @property
    def rivals(self) -> tuple[Arm, ...]:
        """The arms with a speed-up over the baseline."""
        return tuple(arm for arm in self.arms if arm.headline and arm.scheme != self.baseline)

    @property
    def kind(self) -> str:
        """Which comparison this is, in a word."""
        return "tuned" if self.tuned else "matched"


def compare(sweep: Sweep, baseline: str = "sinusoidal") -> tuple[Panel, ...]:
    """One panel a setting.

    Raises:
        UserError: if there are no runs.
    """
    if not sweep.runs:
        raise UserError(f"no runs in {sweep.name}")
    return tuple(_panel(setting, runs, baseline, sweep) for setting, runs in fairness.panels(sweep.runs))


def _panel(setting: Mapping[str, Any], runs: Sequence[Run], baseline: str, sweep: Sweep) -> Panel:
    arms, notices = fairness.by_scheme(runs)
    chosen, strangers = fairness.differences(arms, baseline, bool(sweep.search))
    notices += strangers.values()
    alike = {scheme: every for scheme, every in arms.items() if scheme not in strangers}
    budget, compared, provisional = fairness.budget(alike, baseline)
    kept = {scheme: [_cut(run, budget) for run in alike[scheme] if run.last_step >= budget] for scheme in compared}
    notices += _unfinished(alike, compared)
    if baseline not in kept:
        others = ", ".join(arms)
        notices.append(f"the baseline {baseline} is missing (there are {others}): no speed-up can be given")
    machines = sorted({str(run.summary["hardware"]) for run in runs if "hardware" in run.summary})
    if len(machines) > 1:
        notices.append(f"seconds are not comparable: the runs were on {', '.join(machines)}")
    early = provisional and min(len(run.curve["step"]) for every in kept.values() for run in every) < EARLY
    if early:
        notices.append(f"fewer than {EARLY} validations so far: no speed-up yet")
    drawn = []
    for scheme, every in kept.items():
        pairs = [] if early else _pairs(every, kept.get(baseline, ()))
        if baseline in kept and not early and not pairs:
            notices.append(f"{scheme} and {baseline} share no seed: no speed-up can be given")
        lost = sum(run.scheme == scheme and fairness.alike(run, every[0]) for run in sweep.diverged)
        drawn.append(_arm(scheme, every, pairs, budget, lost))
    for scheme in strangers:
        begun = [_cut(run, budget) for run in arms[scheme] if run.curve["step"][0] <= budget]
        drawn += [_arm(scheme, begun, [], budget, 0)] if begun else []
    drawn.sort(key=lambda arm: arm.loss.value)
    if max(len(arm.runs) for arm in drawn) < 2:
        notices.append("one seed only: there is no interval, and so no verdict")
    return Panel(
        setting=setting,
        baseline=baseline,
        budget=budget,
        provisional=provisional,
        arms=tuple(drawn),
        tuned=bool(sweep.search),
        chosen=chosen,
        one_machine=len(machines) < 2,
        notices=tuple(notices),
    )


def _unfinished(arms: fairness.Arms, compared: Sequence[str]) -> list[str]:
    going_on = [run for every in arms.values() for run in every if not run.finished]
    notices = [f"{run.name} is not finished: step {run.last_step} of {run.budget}" for run in going_on]
    waiting = [scheme for scheme in arms if scheme not in compared]
    return notices + [f"{scheme} is not compared before one of its runs is finished" for scheme in waiting]


def _cut(run: Run, budget: int) -> Run:
    """The same run up to a step."""
    inside = run.curve["step"] <= budget
    return replace(run, curve={name: values[inside] for name, values in run.curve.items()})


def _arm(scheme: str, runs: Sequence[Run], pairs: Sequence[Pair], budget: int, diverged: int) -> Arm:
    finished = [run.summary for run in runs if run.finished]
    last = [float(run.curve["val_loss"][-1]) for run in runs]
    # A summary's bits are those of its last loss; a run cut short has as many more as its loss is higher.
    bits = [
        loss * run.summary["bits_per_byte"] / run.summary["val_loss"]
        for run, loss in zip(runs, last, strict=True)
        if "bits_per_byte" in run.summary  # not so while a run goes on, and never where a model fills blanks
    ]
    return Arm(
        scheme,
        tuple(runs),
        convergence.mean(last),
        convergence.mean(bits) if len(bits) == len(runs) else None,
        finished[0]["parameters"] if finished else None,
        float(np.median([summary["tokens_per_s"] for summary in finished])) if finished else None,
        tuple(_mark(fraction, _levels(pairs, 0, fraction * budget), pairs) for fraction in FRACTIONS) if pairs else (),
        _mark(1.0, list(map(max, *(_levels(pairs, side, budget) for side in (0, 1)))), pairs) if pairs else None,
        diverged,
    )


def _pairs(arm: Sequence[Run], baseline: Sequence[Run]) -> list[Pair]:
    """The baseline's curve and the scheme's, for each seed that both have."""
    theirs = {run.seed: run.curve for run in baseline}
    return [(theirs[run.seed], run.curve) for run in arm if run.seed in theirs]


def _levels(pairs: Sequence[Pair], side: int, step: float) -> list[float]:
    """The loss of the baseline (side 0) or of the scheme (side 1) at a step, seed by seed."""
    return [convergence.level_at(pair[side]["step"], pair[side]["val_loss"], step) for pair in pairs]


def _mark(fraction: float, levels: Sequence[float], pairs: Sequence[Pair]) -> Mark:
    """Each seed at its own level."""

    def to_level(axis: str, side: int) -> list[float]:
        return [
            convergence.reached(pair[side][axis], pair[side]["val_loss"], level)
            for pair, level in zip(pairs, levels, strict=True)
        ]

    return Mark(
        fraction,
        float(np.mean(levels)),
        convergence.mean(to_level("step", 1)),
        convergence.speed_up(to_level("step", 0), to_level("step", 1)),
        convergence.speed_up(to_level("seconds", 0), to_level("seconds", 1)),
    )


def without_seconds(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """The same panels for runs beside other work, whose seconds say nothing about the schemes."""
    told = "seconds and tokens/s say nothing about the schemes: the machine did other work beside the runs"
    return tuple(replace(panel, one_machine=False, notices=(*panel.notices, told)) for panel in panels)


def marks_at(arm: Arm, panel: Panel, fractions: Sequence[float]) -> list[Mark]:
    """The arm at the baseline's loss after other shares of the budget than the usual ones."""
    (baseline,) = (other for other in panel.arms if other.scheme == panel.baseline)
    pairs = _pairs(arm.runs, baseline.runs)
    return [_mark(fraction, _levels(pairs, 0, fraction * panel.budget), pairs) for fraction in fractions]


def speed_up_by_level(arm: Arm, baseline: Arm, levels: Sequence[float]) -> list[Estimate]:
    """Speed-up in steps at losses that are the same for every seed, for a curve over them.

    The baseline must reach every level with every shared seed.
    """
    pairs = _pairs(arm.runs, baseline.runs)
    return [_mark(1.0, [level] * len(pairs), pairs).in_steps for level in levels]


def common_levels(baseline: Arm, budget: int, count: int = 60) -> list[float]:
    """The baseline's mean loss from a tenth of the budget on, down to the last level that all its seeds reach."""
    end = max(float(np.min(run.curve["val_loss"])) for run in baseline.runs)
    curves = [(run.curve["step"], run.curve["val_loss"]) for run in baseline.runs]
    steps = np.linspace(budget / 10, budget, count)
    means = [float(np.mean([convergence.level_at(*curve, step) for curve in curves])) for step in steps]
    return [*(level for level in means if level > end), end]
