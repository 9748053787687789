"""Which runs may stand side by side: settings, what was not held equal, how far the runs have come."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posenc.analysis.runs import Run

TUNED = ("optim", "pos", "schedule")
"""What a search may choose for each scheme; anything else must be the same for all."""

Arms = Mapping[str, Sequence[Run]]
"""The runs of each scheme."""


def panels(runs: Sequence[Run]) -> Iterator[tuple[dict[str, Any], list[Run]]]:
    """The runs of each setting, with the keys that set it apart.

    A scheme without a key, such as none without pos.base, belongs to every value of it; so does one that has only one
    value of a key of its own.
    """
    axes = swept_keys(runs)
    groups = []
    for values in itertools.product(*(_values(runs, key) for key in axes)):
        setting = dict(zip(axes, values, strict=True))
        inside = [run for run in runs if all(_belongs(run, key, value, runs) for key, value in setting.items())]
        if inside and all(any(run.setting.get(key) == value for run in inside) for key, value in setting.items()):
            groups.append((setting, inside))
    for setting, inside in groups:
        yield {**setting, **_following(setting, inside, runs)}, inside


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


def _values(runs: Sequence[Run], key: str) -> list[Any]:
    """The different values of a key, numbers by size."""
    different = {str(run.setting[key]): run.setting[key] for run in runs if key in run.setting}
    return sorted(different.values(), key=_by_size)


def _by_size(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, value if number else 0.0, str(value)


def _belongs(run: Run, key: str, value: Any, runs: Sequence[Run]) -> bool:
    if run.setting.get(key, value) == value:
        return True
    return key.startswith("pos.") and len(_values([other for other in runs if other.scheme == run.scheme], key)) == 1


def _following(setting: Mapping[str, Any], inside: Sequence[Run], runs: Sequence[Run]) -> dict[str, Any]:
    """Choices that change together with a setting's: batch_size=64 alone would not tell that the data differ too."""
    keys = sorted({key for run in runs for key in run.setting if "." not in key} - setting.keys())
    shared = {key: _values(inside, key) for key in keys if len(_values(runs, key)) > 1}
    return {key: values[0] for key, values in shared.items() if len(values) == 1}


def alike(run: Run, other: Run) -> bool:
    """Whether two runs of a scheme differ in nothing but the seed, as far as both are known."""
    return all(run.setting[key] == other.setting[key] for key in run.setting.keys() & other.setting.keys())


def by_scheme(runs: Sequence[Run]) -> tuple[dict[str, list[Run]], list[str]]:
    """The runs of each scheme, one a seed, and a sentence for each that is one too many."""
    arms: dict[str, dict[int, Run]] = {}
    notices = []
    for run in sorted(runs, key=lambda run: (run.seed, not run.finished)):
        seeds = arms.setdefault(run.scheme, {})
        if run.seed in seeds:
            notices.append(f"{run.name} is there more than once; {seeds[run.seed].source} is shown")
        else:
            seeds[run.seed] = run
    return {scheme: list(seeds.values()) for scheme, seeds in arms.items()}, notices


def differences(arms: Arms, baseline: str, searched: bool) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What a search chose for each scheme, and a sentence for each scheme that was not treated like the baseline.

    Without the baseline every scheme is held against the first.
    """
    reference = baseline if baseline in arms else next(iter(arms))
    merged = {
        scheme: {key: value for run in runs for key, value in run.setting.items()} for scheme, runs in arms.items()
    }
    chosen: dict[str, dict[str, Any]] = {}
    strangers: dict[str, str] = {}
    for key in sorted({key for setting in merged.values() for key in setting}):
        group = key.partition(".")[0]
        values = {scheme: setting[key] for scheme, setting in merged.items() if key in setting}
        if group == "pos" and not searched or len({str(value) for value in values.values()}) < 2:
            continue
        if searched and group in TUNED:
            chosen[key] = values
            continue
        ours = values.get(reference)
        for scheme, value in values.items():
            if reference in values and value != ours:
                sentence = f"{scheme} and {reference} cannot be compared: {key} is {value} for {scheme} and {ours} for "
                strangers.setdefault(scheme, sentence + reference)
    return chosen, strangers


def budget(arms: Arms, baseline: str) -> tuple[int, list[str], bool]:
    """Steps to compare, the schemes that have come so far, and whether that is only a beginning.

    With the baseline and another scheme finished, those are compared whole; otherwise all, as far as the furthest run
    of each has come.
    """
    finished = [scheme for scheme, runs in arms.items() if any(run.finished for run in runs)]
    complete = len(finished) == len(arms) or (baseline in finished and len(finished) > 1)
    compared = finished if complete else list(arms)
    return min(max(run.last_step for run in arms[scheme]) for scheme in compared), compared, not complete
