"""Beyond the training length: what the models of each scheme make of longer windows, over seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.bands import Band, over_seeds
from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.convergence import Estimate, mean
from posenc.storage.lengths_file import TIMES, AtLength, Lengths

HEADLINE = 2.0
"""The multiple of the training length that the sentence is about, if there is an entry at it."""


@dataclass(frozen=True)
class Row:
    """One scheme.

    Attributes:
        scheme: its name.
        seeds: runs evaluated, of how many there are.
        bits: bits per byte at each multiple of the training length that has an entry.
        change: bits per byte there less those at the training length, seed by seed.
        no_entry: why another multiple has none.
    """

    scheme: str
    seeds: str
    bits: Mapping[float, Estimate]
    change: Mapping[float, Estimate]
    no_entry: Mapping[float, str]


@dataclass(frozen=True)
class Beyond:
    """What a panel's models make of longer windows.

    Attributes:
        sentence: in words.
        context: the training length.
        lengths: tokens at each multiple.
        rows: a scheme each, those that were evaluated.
        gaps: why there are multiples without an entry, a sentence for each reason.
    """

    sentence: str
    context: int
    lengths: Mapping[float, int]
    rows: tuple[Row, ...]
    gaps: tuple[str, ...]


def beyond(panel: Panel) -> Beyond | None:
    """The panel in longer windows, or None if none of its runs was evaluated there."""
    rows = tuple(_row(arm) for arm in panel.arms if evaluated(arm))
    if not rows:
        return None
    first = next(one for arm in panel.arms for one in evaluated(arm))
    lengths = {entry.times: entry.length for entry in first.entries}
    return Beyond(_sentence(rows, lengths), first.context, lengths, rows, _gaps(rows))


def evaluated(arm: Arm) -> list[Lengths]:
    """Those of an arm's runs that were evaluated."""
    return [run.lengths for run in arm.runs if run.lengths is not None]


def bits_band(arm: Arm) -> Band:
    """Bits per byte against the multiple of the training length."""
    every = [[np.nan if e.bits_per_byte is None else e.bits_per_byte for e in one.entries] for one in evaluated(arm)]
    return over_seeds(np.array(TIMES), np.array(every))


def position_band(arm: Arm) -> Band:
    """Loss in nats per token against the position in a window, as far as every run has an entry.

    Positions up to the training length are those of the windows of that length, since there are more of these; the
    rest are those of the longest windows. They count from 1, so that they can be drawn on a logarithmic axis; a bucket
    stands at its geometric middle.
    """
    entries = _entries(arm)
    if not entries:
        return over_seeds(np.empty(0), np.empty((1, 0)))
    every = [list(_along(column[0], column[-1])) for column in zip(*entries.values(), strict=True)]
    return over_seeds(np.array([x for x, _ in every[0]]), np.array([[loss for _, loss in one] for one in every]))


def _along(shortest: AtLength, longest: AtLength) -> Iterator[tuple[float, float]]:
    """Where each bucket stands, and its loss."""
    for entry, begin in ((shortest, 0), (longest, shortest.length)):
        for first, end, loss in zip(entry.edges[:-1], entry.edges[1:], entry.losses, strict=True):
            if first >= begin:
                yield math.sqrt((first + 1) * end), loss


def _entries(arm: Arm) -> dict[float, list[AtLength]]:
    """The runs' entries at each multiple at which all of them have one."""
    columns = zip(*(one.entries for one in evaluated(arm)), strict=True)
    return {column[0].times: list(column) for column in columns if not any(entry.no_entry for entry in column)}


def _row(arm: Arm) -> Row:
    every, there = evaluated(arm), _entries(arm)
    bits = {times: [entry.bits_per_byte or 0.0 for entry in column] for times, column in there.items()}
    return Row(
        arm.scheme,
        str(len(every)) if len(every) == len(arm.runs) else f"{len(every)} of {len(arm.runs)}",
        {times: mean(values) for times, values in bits.items()},
        {times: mean(list(np.subtract(values, bits[1.0]))) for times, values in bits.items() if 1.0 in bits},
        {entry.times: entry.no_entry for one in every for entry in one.entries if entry.no_entry},
    )


def _gaps(rows: Sequence[Row]) -> tuple[str, ...]:
    """One sentence a scheme and reason, or for all schemes where they share it."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reasons: dict[str, list[str]] = {}
        for times, reason in row.no_entry.items():
            reasons.setdefault(reason, []).append(f"{times:g}x")
        for reason, where in reasons.items():
            found.setdefault((reason, ", ".join(where)), []).append(row.scheme)
    return tuple(
        f"No entry for {', '.join(schemes)} at {where}: {reason}" for (reason, where), schemes in found.items()
    )


def _sentence(rows: Sequence[Row], lengths: Mapping[float, int]) -> str:
    """How much a byte costs in longer windows, against windows of the training length."""
    there = [times for times in lengths if times > 1 and any(times in row.change for row in rows)]
    if not there:
        return "No length beyond the one trained at has an entry."
    times = HEADLINE if HEADLINE in there else max(there)
    multiple = "twice" if times == 2 else f"{times:g} times"
    costs = [f"{_change(row.change[times])} with {row.scheme}" for row in rows if times in row.change]
    without = [f"{row.scheme} has no entry ({row.no_entry[times]})" for row in rows if times in row.no_entry]
    windows = f"In windows of {lengths[times]:,} tokens, {multiple} those trained at"
    return f"{windows}, a byte costs {'; '.join([', '.join(costs), *without])}."


def _change(change: Estimate) -> str:
    """0.412 bits more (0.380 to 0.444), and whether that can be told from no change."""
    cost = f"{abs(change.value):.3f} bits {'more' if change.value > 0 else 'less'}"
    if change.low is None or change.high is None:
        return cost
    if change.low <= 0 <= change.high:
        return f"{cost} ({change.low:+.3f} to {change.high:+.3f}, perhaps no change)"
    low, high = sorted((abs(change.low), abs(change.high)))
    return f"{cost} ({low:.3f} to {high:.3f})"
