"""Which runs of one setting are compared, and up to which step."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from posenc.analysis.runs import Run, age

Schemes = Mapping[str, Sequence[Run]]
"""The runs of each scheme."""


@dataclass(frozen=True)
class Comparable:
    """The runs of one setting that are compared.

    Attributes:
        budget: number of steps compared.
        provisional: whether that is less than the full length of the runs.
        kept: the runs of each scheme that is compared, one per seed, truncated to the budget.
        excluded: those of each scheme that differs from the baseline in more than its own hyperparameters, truncated
            likewise.
        notices: what was left out and why, one sentence each.
    """

    budget: int
    provisional: bool
    kept: Schemes
    excluded: Schemes
    notices: tuple[str, ...]


def comparable_runs(runs: Sequence[Run], baseline: str, searched: Collection[str]) -> Comparable:
    """The comparable ones of the runs of one setting.

    Args:
        searched: hyperparameters, and groups of them, in which a scheme may differ from the baseline, besides its own.
    """
    schemes, repeated = _by_scheme(runs)
    differences = _differences(schemes, baseline, searched)
    alike = {scheme: runs for scheme, runs in schemes.items() if scheme not in differences}
    budget, compared, provisional = _budget(alike, baseline)
    kept = _truncated({scheme: alike[scheme] for scheme in compared}, budget)
    excluded = _truncated({scheme: schemes[scheme] for scheme in differences}, budget)
    notices = chain(repeated, _excluded(differences), _unfinished(schemes), _waiting(alike, kept))
    return Comparable(budget, provisional, kept, excluded, tuple(notices))


def _truncated(schemes: Schemes, budget: int) -> dict[str, list[Run]]:
    """The runs that reach the budget, up to it, without those that were not validated by then."""
    whole = {
        scheme: [run.until(budget) for run in runs if run.curve["step"][0] <= budget <= run.last_step]
        for scheme, runs in schemes.items()
    }
    return {scheme: runs for scheme, runs in whole.items() if runs}


def _by_scheme(runs: Sequence[Run]) -> tuple[dict[str, list[Run]], list[str]]:
    """The runs of each scheme, the newest finished one per seed, and a notice for each duplicate."""
    oldest_first = sorted(runs, key=lambda run: (run.finished, *age(run)))
    used = {(run.scheme, run.seed): run for run in oldest_first}
    schemes: dict[str, list[Run]] = {}
    notices = []
    for run in sorted(runs, key=lambda run: (run.seed, not run.finished)):
        kept = used[run.scheme, run.seed]
        if run is kept:
            schemes.setdefault(run.scheme, []).append(run)
        else:
            which = "newest finished one" if kept.finished else "newest"
            notices.append(f"{run.name} exists more than once; {kept.source}, the {which}, is used")
    return schemes, notices


def _differences(schemes: Schemes, baseline: str, searched: Collection[str]) -> dict[str, str]:
    """Why each scheme that differs from the baseline in other hyperparameters cannot be compared with it.

    Without the baseline every scheme is compared with the first.
    """
    reference = baseline if baseline in schemes else next(iter(schemes))
    merged = {
        scheme: {key: value for run in runs for key, value in run.setting.items()} for scheme, runs in schemes.items()
    }
    excluded: dict[str, str] = {}
    for key, ours in sorted(merged[reference].items()):
        if not {key, key.partition(".")[0]}.isdisjoint({*searched, "pos"}):
            continue
        for scheme, setting in merged.items():
            if str(value := setting.get(key, ours)) != str(ours):
                reason = f"cannot be compared with {reference}: {key} is {value}, and {ours} for {reference}"
                excluded.setdefault(scheme, reason)
    return excluded


def _excluded(reasons: Mapping[str, str]) -> Iterator[str]:
    """A notice for each reason, with the schemes it applies to."""
    for reason in dict.fromkeys(reasons.values()):
        yield f"{', '.join(scheme for scheme, why in reasons.items() if why == reason)} {reason}"


def _unfinished(schemes: Schemes) -> Iterator[str]:
    for run in (run for every in schemes.values() for run in every if not run.finished):
        yield f"{run.name} is not finished: step {run.last_step} of {run.budget}"


def _waiting(schemes: Schemes, compared: Collection[str]) -> Iterator[str]:
    for scheme in schemes:
        if scheme not in compared:
            yield f"{scheme} is not compared until one of its runs is finished"


def _budget(schemes: Schemes, baseline: str) -> tuple[int, list[str], bool]:
    """The number of steps to compare, the schemes that have reached it, and whether the comparison is provisional.

    If the baseline and another scheme are finished, the finished schemes are compared in full; otherwise all are, up to
    the step that the furthest run of each has reached.
    """
    finished = [scheme for scheme, runs in schemes.items() if any(run.finished for run in runs)]
    complete = len(finished) == len(schemes) or (baseline in finished and len(finished) > 1)
    compared = finished if complete else list(schemes)
    return min(max(run.last_step for run in schemes[scheme]) for scheme in compared), compared, not complete
