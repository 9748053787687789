"""The comparison of a sweep's runs: which are comparable, up to which step, and the results."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.analysis.arms import Arm, Threshold, build_arm
from posenc.analysis.attention_heads import HeadAnalysis, NGramBaseline, analyse_heads, ngram_baseline
from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT
from posenc.analysis.extrapolation import Extrapolation, extrapolation
from posenc.analysis.published import Reproduction, reproduction
from posenc.analysis.runs import Run
from posenc.analysis.settings import settings
from posenc.analysis.sweep import Sweep
from posenc.errors import UserError

BASELINE = "sinusoidal"
"""The default baseline."""

MIN_VALIDATIONS = 4
"""Minimum number of validations for unfinished runs to be compared."""

TUNED = ("optim", "pos", "schedule")
"""Groups that a search may tune for each scheme; anything else must be the same for all."""

Schemes = Mapping[str, Sequence[Run]]
"""The runs of each scheme."""


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
    heads: HeadAnalysis | None
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
        """The thresholds of one rival, for their fractions and levels; empty if nothing is compared."""
        return self.rivals[0].thresholds if self.rivals else ()


@dataclass(frozen=True)
class Comparison:
    """The full analysis of a sweep, one panel per setting; rendered by `posenc.report`."""

    sweep: Sweep
    panels: tuple[Panel, ...]

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
        raise UserError(f"--baseline={baseline} is not a scheme of {sweep.name}; choose from {', '.join(schemes)}")
    panels = (_panel(setting, runs, baseline or BASELINE, sweep, busy) for setting, runs in settings(sweep.runs))
    return Comparison(sweep, tuple(panels))


def _panel(setting: Mapping[str, Any], runs: Sequence[Run], baseline: str, sweep: Sweep, busy: bool) -> Panel:
    schemes, repeated = _by_scheme(runs)
    excluded = _differences(schemes, baseline, TUNED if sweep.search else ("pos",))
    comparable = {scheme: runs for scheme, runs in schemes.items() if scheme not in excluded}
    budget, compared, provisional = _budget(comparable, baseline)
    within = {
        scheme: [run for run in comparable[scheme] if run.curve["step"][0] <= budget <= run.last_step]
        for scheme in compared
    }
    kept = {scheme: [run.until(budget) for run in runs] for scheme, runs in within.items() if runs}
    early = provisional and min(len(run.curve["step"]) for runs in kept.values() for run in runs) < MIN_VALIDATIONS
    lost = {scheme: _diverged(sweep.diverged, of[0]) for scheme, of in kept.items()}
    shared = () if early else kept.get(baseline, ())
    arms = [build_arm(scheme, of, shared, budget, lost[scheme], lost.get(baseline, 0)) for scheme, of in kept.items()]
    own = sorted(arms, key=_final_loss)
    for scheme in excluded:
        started = [run.until(budget) for run in schemes[scheme] if run.curve["step"][0] <= budget]
        arms += [Arm(scheme, tuple(started))] if started else []
    arms.sort(key=_final_loss)
    machines = sorted({str(run.summary["hardware"]) for run in runs if "hardware" in run.summary})
    ngram = ngram_baseline(run for arm in own for run in arm.runs)
    return Panel(
        setting=setting,
        baseline=baseline,
        budget=budget,
        provisional=provisional,
        arms=tuple(arms),
        comparable=tuple(own),
        tuned=bool(sweep.search),
        one_machine=len(machines) < 2 and not busy,
        notices=(
            *repeated, *_excluded(excluded), *_unfinished(comparable, kept),
            *_not_compared(arms, kept, baseline, early), *_about_seconds(machines, busy),
        ),
        ngram=ngram,
        heads=analyse_heads(own, ngram),
        extrapolation=extrapolation(own),
        reproduction=None if provisional else reproduction(own, baseline, budget),
    )  # fmt: skip


def _final_loss(arm: Arm) -> float:
    return arm.loss.value


def _diverged(diverged: Sequence[Run], run: Run) -> int:
    """The number of diverged runs of this run's scheme that differ from it only in the seed, for keys both have."""
    return sum(
        other.scheme == run.scheme
        and all(run.setting[key] == other.setting[key] for key in run.setting.keys() & other.setting.keys())
        for other in diverged
    )


def _unfinished(schemes: Schemes, compared: Collection[str]) -> Iterator[str]:
    for run in (run for every in schemes.values() for run in every if not run.finished):
        yield f"{run.name} is not finished: step {run.last_step} of {run.budget}"
    for scheme in schemes:
        if scheme not in compared:
            yield f"{scheme} is not compared until one of its runs is finished"


def _not_compared(arms: Sequence[Arm], kept: Schemes, baseline: str, early: bool) -> Iterator[str]:
    """Why there is no speed-up, or no verdict."""
    if baseline not in kept:
        others = ", ".join(arm.scheme for arm in arms)
        yield f"the baseline {baseline} is missing (found {others}): no speed-up can be computed"
    elif early:
        yield f"fewer than {MIN_VALIDATIONS} validations so far: no speed-up yet"
    else:
        for arm in arms:
            if arm.scheme in kept and arm.headline is None:
                yield f"{arm.scheme} and {baseline} share no seed: no speed-up can be computed"
    seeds = max(len(arm.runs) for arm in arms)
    if seeds < SEEDS_FOR_A_VERDICT:
        yield f"{'one seed' if seeds == 1 else f'{seeds} seeds'} only: no verdict with fewer than {SEEDS_FOR_A_VERDICT}"


def _about_seconds(machines: Sequence[str], busy: bool) -> Iterator[str]:
    if len(machines) > 1:
        yield f"seconds are not comparable: the runs were on {', '.join(machines)}"
    if busy:
        yield "seconds and tokens/s are not comparable: the machine did other work during the runs"


def _by_scheme(runs: Sequence[Run]) -> tuple[dict[str, list[Run]], list[str]]:
    """The runs of each scheme, the newest finished one per seed, and a notice for each duplicate."""
    used: dict[tuple[str, int], Run] = {}
    # Runs of one day differ in the number at the end of their directories' names.
    for run in sorted(runs, key=lambda run: (run.finished, run.summary.get("date", ""), len(run.source), run.source)):
        used[run.scheme, run.seed] = run
    schemes: dict[str, dict[int, Run]] = {}
    notices = []
    for run in sorted(runs, key=lambda run: (run.seed, not run.finished)):
        kept = used[run.scheme, run.seed]
        if run is kept:
            schemes.setdefault(run.scheme, {})[run.seed] = run
        else:
            notices.append(f"{run.name} exists more than once; {kept.source}, the newest, is used")
    return {scheme: list(seeds.values()) for scheme, seeds in schemes.items()}, notices


def _differences(schemes: Schemes, baseline: str, own: Collection[str]) -> dict[str, str]:
    """Why each scheme that differs from the baseline in other groups than its own cannot be compared with it.

    Without the baseline every scheme is compared with the first.
    """
    reference = baseline if baseline in schemes else next(iter(schemes))
    merged = {
        scheme: {key: value for run in runs for key, value in run.setting.items()} for scheme, runs in schemes.items()
    }
    excluded: dict[str, str] = {}
    for key in sorted({key for setting in merged.values() for key in setting}):
        values = {scheme: setting[key] for scheme, setting in merged.items() if key in setting}
        if key.partition(".")[0] in own:
            continue
        ours = values.get(reference)
        for scheme, value in values.items():
            if reference in values and str(value) != str(ours):
                reason = f"cannot be compared with {reference}: {key} is {value}, and {ours} for {reference}"
                excluded.setdefault(scheme, reason)
    return excluded


def _excluded(reasons: Mapping[str, str]) -> Iterator[str]:
    """A notice for each reason, with the schemes it applies to."""
    for reason in dict.fromkeys(reasons.values()):
        yield f"{', '.join(scheme for scheme, own in reasons.items() if own == reason)} {reason}"


def _budget(schemes: Schemes, baseline: str) -> tuple[int, list[str], bool]:
    """The number of steps to compare, the schemes that have reached it, and whether the comparison is provisional.

    If the baseline and another scheme are finished, the finished schemes are compared in full; otherwise all are, up to
    the step that the furthest run of each has reached.
    """
    finished = [scheme for scheme, runs in schemes.items() if any(run.finished for run in runs)]
    complete = len(finished) == len(schemes) or (baseline in finished and len(finished) > 1)
    compared = finished if complete else list(schemes)
    return min(max(run.last_step for run in schemes[scheme]) for scheme in compared), compared, not complete
