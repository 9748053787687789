"""The settings of a sweep: the keys that vary apart from scheme and seed, and the runs at each of their values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posenc.analysis.runs import Run


def settings(runs: Sequence[Run]) -> Iterator[tuple[dict[str, Any], list[Run]]]:
    """The runs of each setting, with the keys that distinguish it.

    A scheme without a key, such as none without pos.base, belongs to every value of it, as does a scheme with a single
    value of a `pos` key. A combination of values that no run has is left out, unless it has runs that no other has.
    """
    cells = [(_held(setting, inside), len(setting), inside) for setting, inside in _cells(runs, swept_keys(runs), runs)]
    shown = {id(run) for held, values, inside in cells if len(held) == values for run in inside}
    for held, values, inside in cells:
        if len(held) == values or not shown.issuperset(map(id, inside)):
            shown.update(map(id, inside))
            yield {**held, **_following(held, inside, runs)}, inside


def _held(setting: Mapping[str, Any], inside: Sequence[Run]) -> dict[str, Any]:
    """The values of a setting that some of its runs have."""
    return {key: value for key, value in setting.items() if any(run.setting.get(key) == value for run in inside)}


def _cells(
    inside: Sequence[Run], axes: Sequence[str], runs: Sequence[Run]
) -> Iterator[tuple[dict[str, Any], list[Run]]]:
    """The runs of `inside` at each combination of the axes' values that some of them have, one axis after the other."""
    if not axes:
        yield {}, list(inside)
        return
    key, *others = axes
    if not (values := _values(inside, key)):
        yield from _cells(inside, others, runs)
    for value in values:
        for setting, kept in _cells([run for run in inside if _belongs(run, key, value, runs)], others, runs):
            yield {key: value, **setting}, kept


def swept_keys(runs: Sequence[Run]) -> list[str]:
    """The keys that take several values within a scheme; each combination is a panel.

    A choice comes before the values that it sets, so that model=small is one key, not four.
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
    """The distinct values of a key, numbers sorted numerically."""
    distinct = {str(run.setting[key]): run.setting[key] for run in runs if key in run.setting}
    return sorted(distinct.values(), key=_by_size)


def _by_size(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, value if number else 0.0, str(value)


def _belongs(run: Run, key: str, value: Any, runs: Sequence[Run]) -> bool:
    if run.setting.get(key, value) == value:
        return True
    return key.startswith("pos.") and len(_values([other for other in runs if other.scheme == run.scheme], key)) == 1


def _following(setting: Mapping[str, Any], inside: Sequence[Run], runs: Sequence[Run]) -> dict[str, Any]:
    """Choices that change together with a setting's: batch_size=64 alone would hide that the data differ too."""
    keys = sorted({key for run in runs for key in run.setting if "." not in key} - setting.keys())
    shared = {key: _values(inside, key) for key in keys if len(_values(runs, key)) > 1}
    return {key: values[0] for key, values in shared.items() if len(values) == 1}
