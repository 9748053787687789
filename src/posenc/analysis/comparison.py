"""Runs side by side: which may be compared, and what comes out."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posenc.analysis import convergence
from posenc.analysis.convergence import FRACTIONS, Estimate
from posenc.analysis.runs import Run, Sweep
from posenc.errors import UserError

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Two curves of one seed: the baseline's and a scheme's."""

TUNED = "optim"
"""The group that may differ between schemes in a fair comparison: each at its own best."""


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
    """

    scheme: str
    runs: tuple[Run, ...]
    loss: Estimate
    bits: Estimate | None
    parameters: int | None
    tokens_per_s: float | None
    marks: tuple[Mark, ...] = ()
    headline: Mark | None = None

    @property
    def verdict(self) -> str:
        """Faster, slower, not distinguishable or undecided; empty where there is no baseline."""
        return convergence.judge(self.headline.in_steps) if self.headline else ""


@dataclass(frozen=True)
class Panel:
    """The runs of one setting.

    Attributes:
        setting: the values that set this panel apart, empty if there is only one.
        baseline: the scheme the others are held against.
        budget: steps compared.
        provisional: whether that is less than the runs are to be trained for.
        arms: the schemes.
        differences: hyperparameters that differ from scheme to scheme: the comparison is of best against best.
        notices: what a reader must know, a sentence each.
    """

    setting: Mapping[str, Any]
    baseline: str
    budget: int
    provisional: bool
    arms: tuple[Arm, ...]
    differences: Mapping[str, Mapping[str, Any]]
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
        return "tuned" if self.differences else "matched"


def compare(sweep: Sweep, baseline: str = "sinusoidal") -> tuple[Panel, ...]:
    """One panel a setting.

    Raises:
        UserError: if there are no runs.
    """
    if not sweep.runs:
        raise UserError(f"no runs in {sweep.name}")
    axes = swept_keys(sweep.runs)
    panels = []
    for values in itertools.product(*(_values(sweep.runs, key) for key in axes)):
        setting = dict(zip(axes, values, strict=True))
        # A scheme without a key, such as none without pos.base, belongs to every value of it.
        inside = [
            run for run in sweep.runs if all(run.setting.get(key, value) == value for key, value in setting.items())
        ]
        if inside and all(any(key in run.setting for run in inside) for key in axes):
            panels.append(_panel(setting, inside, baseline))
    return tuple(panels)


def _values(runs: Sequence[Run], key: str) -> list[Any]:
    """The different values of a key, numbers by size."""
    different = {str(run.setting[key]): run.setting[key] for run in runs if key in run.setting}
    return sorted(different.values(), key=_by_size)


def _by_size(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, value if number else 0.0, str(value)


def swept_keys(runs: Sequence[Run]) -> list[str]:
    """The keys that take several values within a scheme: each combination is a panel of its own.

    A choice comes before the values it brings along, so that model=small is one key and not four.
    """
    keys = {key for run in runs for key in run.setting}
    axes: list[str] = []
    for key in sorted(keys, key=lambda key: ("." in key, key.startswith("pos."), key)):
        cells: dict[tuple[Any, ...], set[str]] = {}
        for run in runs:
            if key in run.setting:
                cell = (run.scheme, *(str(run.setting.get(axis)) for axis in axes))
                cells.setdefault(cell, set()).add(str(run.setting[key]))
        if any(len(values) > 1 for values in cells.values()):
            axes.append(key)
    return axes


def _panel(setting: Mapping[str, Any], runs: Sequence[Run], baseline: str) -> Panel:
    notices: list[str] = []
    by_scheme: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_scheme.setdefault(run.scheme, []).append(run)
    differences, strangers = _differences(by_scheme, baseline)
    notices += strangers.values()
    budget, provisional = _budget(list(by_scheme.values()))
    kept = {
        scheme: tuple(_cut(run, budget) for run in arm if run.last_step >= budget) for scheme, arm in by_scheme.items()
    }
    for every in by_scheme.values():
        going_on = [run for run in every if not run.finished]
        notices += [f"{run.name} is not finished: step {run.last_step} of {run.budget}" for run in going_on]
    if baseline not in kept:
        others = ", ".join(kept)
        notices.append(f"the baseline {baseline} is missing (there are {others}): no speed-up can be given")
    machines = {str(run.summary["hardware"]) for run in runs if "hardware" in run.summary}
    if len(machines) > 1:
        notices.append(f"seconds are not comparable: the runs were on {', '.join(sorted(machines))}")
    arms = []
    for scheme, arm in kept.items():
        pairs = _pairs(arm, kept.get(baseline, ())) if scheme not in strangers else []
        if baseline in kept and scheme not in strangers and not pairs:
            notices.append(f"{scheme} and {baseline} share no seed: no speed-up can be given")
        arms.append(_arm(scheme, arm, pairs, budget))
    arms.sort(key=lambda arm: arm.loss.value)
    if max(len(arm) for arm in kept.values()) < 2:
        notices.append("one seed only: there is no interval, and so no verdict")
    return Panel(setting, baseline, budget, provisional, tuple(arms), differences, tuple(notices))


def _differences(
    by_scheme: Mapping[str, Sequence[Run]], baseline: str
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Which hyperparameters were chosen for each scheme, and which schemes were not treated like the baseline."""
    first = {scheme: runs[0].setting for scheme, runs in by_scheme.items()}
    keys = {key for setting in first.values() for key in setting if not key.startswith("pos.")}
    tuned: dict[str, dict[str, Any]] = {}
    strangers: dict[str, str] = {}
    for key in sorted(keys):
        values = {scheme: setting[key] for scheme, setting in first.items() if key in setting}
        if len({str(value) for value in values.values()}) < 2:
            continue
        if key.partition(".")[0] == TUNED:
            tuned[key] = values
            continue
        for scheme, value in values.items():
            reference = values.get(baseline, value)
            if value != reference:
                strangers.setdefault(
                    scheme,
                    f"{scheme} and {baseline} cannot be compared: {key} is {value} for {scheme} and {reference} "
                    f"for {baseline}",
                )
    return tuned, strangers


def _budget(arms: Sequence[Sequence[Run]]) -> tuple[int, bool]:
    """Steps to compare, what every scheme has reached with some seed, and whether it is only a beginning."""
    reached = min(max(run.last_step for run in arm) for arm in arms)
    return reached, not all(any(run.finished for run in arm) for arm in arms)


def _cut(run: Run, budget: int) -> Run:
    """The same run up to a step."""
    inside = run.curve["step"] <= budget
    curve = {name: values[inside] for name, values in run.curve.items()}
    return Run(run.source, run.scheme, run.seed, run.budget, run.setting, curve, run.summary, run.heads)


def _arm(scheme: str, runs: Sequence[Run], pairs: Sequence[Pair], budget: int) -> Arm:
    finished = [run.summary for run in runs if run.finished]
    whole = len(finished) == len(runs)
    return Arm(
        scheme,
        tuple(runs),
        convergence.mean([float(run.curve["val_loss"][-1]) for run in runs]),
        convergence.mean([summary["bits_per_byte"] for summary in finished]) if whole and finished else None,
        finished[0]["parameters"] if finished else None,
        float(np.median([summary["tokens_per_s"] for summary in finished])) if finished else None,
        tuple(_mark(fraction, _levels(pairs, 0, fraction * budget), pairs) for fraction in FRACTIONS) if pairs else (),
        _mark(1.0, list(map(max, *(_levels(pairs, side, budget) for side in (0, 1)))), pairs) if pairs else None,
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
