"""The comparison of a sweep's runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from posenc.analysis.arms import Arm, Threshold, build_arm
from posenc.analysis.attention_heads import NGramBaseline, SchemeHeads, ngram_baseline, scheme_heads
from posenc.analysis.comparable import comparable_runs
from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT
from posenc.analysis.extrapolation import Extrapolation, extrapolation
from posenc.analysis.published import Reproduction, reproduction
from posenc.analysis.runs import Run
from posenc.analysis.settings import settings
from posenc.analysis.sweep import Sweep
from posenc.errors import UserError
from posenc.storage.run_directory import machine

BASELINE = "sinusoidal"
"""The default baseline."""

MIN_VALIDATIONS = 4
"""Minimum number of validations for unfinished runs to be compared; finished ones need two, one is no curve."""


@dataclass(frozen=True)
class Panel:
    """The comparison of the runs of one setting.

    Attributes:
        setting: the values that distinguish this panel, empty if there is only one.
        budget: number of steps compared.
        provisional: whether that is less than the full length of the runs.
        arms: the schemes, lowest loss first.
        comparable: those of them that have the baseline's other hyperparameters.
        tuned: whether a search chose the hyperparameters of each scheme, so that best is compared with best.
        one_machine: whether seconds are comparable.
        notices: warnings for the reader, one sentence each.
    """

    setting: Mapping[str, Any]
    baseline: str
    budget: int
    provisional: bool
    arms: tuple[Arm, ...]
    comparable: tuple[Arm, ...]
    tuned: bool
    one_machine: bool
    notices: tuple[str, ...]
    ngram: NGramBaseline | None
    heads: tuple[SchemeHeads, ...]
    extrapolation: Extrapolation | None
    reproduction: Reproduction | None

    @property
    def title(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.setting.items())

    @property
    def rivals(self) -> tuple[Arm, ...]:
        """The arms with a speed-up over the baseline."""
        return tuple(arm for arm in self.arms if arm.headline and arm.scheme != self.baseline)

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The baseline's, for their fractions and levels; empty if nothing is compared."""
        return next((arm.thresholds for arm in self.arms if self.rivals and arm.scheme == self.baseline), ())


@dataclass(frozen=True)
class Comparison:
    """The full analysis of a sweep, one panel per setting; rendered by `posenc.report`.

    Attributes:
        busy: whether seconds are not compared, since the machine did other work.
    """

    sweep: Sweep
    panels: tuple[Panel, ...]
    busy: bool

    @property
    def baseline(self) -> str:
        return self.panels[0].baseline

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(arm.scheme for panel in self.panels for arm in panel.arms))

    @property
    def notices(self) -> tuple[str, ...]:
        """All notices without duplicates, the sweep's first."""
        return tuple(
            dict.fromkeys([*self.sweep.notices, *(notice for panel in self.panels for notice in panel.notices)])
        )


def compare(sweep: Sweep, baseline: str | None = None, busy: bool = False) -> Comparison:
    """Analyse a sweep.

    Args:
        baseline: the scheme that the others are compared with; by default BASELINE, if it is there.
        busy: whether the machine did other work during the runs, so that their seconds are not comparable.

    Raises:
        UserError: if there are no runs of the given baseline.
    """
    schemes = sorted({run.scheme for run in sweep.runs})
    if baseline is not None and baseline not in schemes:
        why = "".join(f"; {notice}" for notice in sweep.notices)
        raise UserError(
            f"--baseline={baseline} has no run in {sweep.name} that can be compared; choose from "
            f"{', '.join(schemes)}{why}"
        )
    panels = (_panel(setting, runs, baseline or BASELINE, sweep, busy) for setting, runs in settings(sweep.runs))
    return Comparison(sweep, tuple(panels), busy)


def _panel(setting: Mapping[str, Any], runs: Sequence[Run], baseline: str, sweep: Sweep, busy: bool) -> Panel:
    found = comparable_runs(runs, baseline, sweep.searched)
    validations = (len(run.curve["step"]) for of_scheme in found.kept.values() for run in of_scheme)
    fewest = MIN_VALIDATIONS if found.provisional else 2
    early = fewest if min(validations) < fewest else None
    lost = {scheme: _diverged(sweep.diverged, of_scheme[0]) for scheme, of_scheme in found.kept.items()}
    shared = () if early else found.kept.get(baseline, ())
    comparable = [
        build_arm(scheme, of_scheme, shared, found.budget, lost[scheme], lost.get(baseline, 0))
        for scheme, of_scheme in found.kept.items()
    ]
    comparable.sort(key=attrgetter("loss.value"))
    excluded = [Arm(scheme, tuple(of_scheme)) for scheme, of_scheme in found.excluded.items()]
    arms = sorted([*comparable, *excluded], key=attrgetter("loss.value"))
    summaries = [run.summary for arm in arms for run in arm.runs if "hardware" in run.summary]
    machines = sorted({one for summary in summaries for one in summary.get("machines", [machine(summary)])})
    ngram = ngram_baseline(run for arm in comparable for run in arm.runs)
    return Panel(
        setting=setting,
        baseline=baseline,
        budget=found.budget,
        provisional=found.provisional,
        arms=tuple(arms),
        comparable=tuple(comparable),
        tuned=bool(sweep.search),
        one_machine=len(machines) < 2 and not busy,
        notices=(*found.notices, *_not_compared(arms, comparable, baseline, early), *_about_seconds(machines, busy)),
        ngram=ngram,
        heads=scheme_heads(comparable, ngram),
        extrapolation=extrapolation(comparable),
        reproduction=None if found.provisional else reproduction(comparable, baseline, found.budget),
    )


def _diverged(diverged: Sequence[Run], run: Run) -> int:
    """The number of diverged runs of this run's scheme that differ from it only in the seed, for keys both have."""
    return sum(
        other.scheme == run.scheme
        and all(run.setting[key] == other.setting[key] for key in run.setting.keys() & other.setting.keys())
        for other in diverged
    )


def _not_compared(arms: Sequence[Arm], comparable: Sequence[Arm], baseline: str, early: int | None) -> Iterator[str]:
    """Why there is no speed-up, or no verdict; some of the comparable arms lack `early` validations."""
    if baseline not in {arm.scheme for arm in comparable}:
        others = ", ".join(arm.scheme for arm in arms)
        advice = "; posenc report can use another, with --baseline" if len(arms) > 1 else ""
        yield f"the baseline {baseline} is missing (found {others}): no speed-up can be computed{advice}"
    elif early:
        yield f"fewer than {early} validations: no speed-up can be computed"
    else:
        for arm in comparable:
            if arm.headline is None:
                yield f"{arm.scheme} and {baseline} share no seed: no speed-up can be computed"
    seeds = max(len(arm.runs) for arm in arms)
    if seeds < SEEDS_FOR_A_VERDICT:
        yield f"{'one seed' if seeds == 1 else f'{seeds} seeds'} only: no verdict with fewer than {SEEDS_FOR_A_VERDICT}"


def _about_seconds(machines: Sequence[str], busy: bool) -> Iterator[str]:
    if len(machines) > 1:
        yield f"seconds are not comparable: the runs were on {' and '.join(machines)}"
    if busy:
        yield "seconds and tokens/s are not comparable: the machine did other work during the runs"
