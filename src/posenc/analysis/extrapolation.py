"""Windows longer than those trained on: what the models of each scheme make of them, over seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.arms import Arm
from posenc.analysis.convergence import Band, Estimate, band, mean
from posenc.storage.lengths_file import AtLength, Lengths

HEADLINE = 2.0
"""The multiple of the training length that is compared with it, if there is an entry at it."""


@dataclass(frozen=True)
class LengthResult:
    """One scheme.

    Attributes:
        scheme: its name.
        evaluated, seeds: how many of its runs were evaluated, of how many.
        bits: bits per byte at each multiple of the training length that has an entry.
        change: bits per byte there less those at the training length, seed by seed.
        no_entry: why another multiple has none.
        by_length: bits per byte against the multiple.
        by_position: loss in nats per token against the position in a window.
    """

    scheme: str
    evaluated: int
    seeds: int
    bits: Mapping[float, Estimate]
    change: Mapping[float, Estimate]
    no_entry: Mapping[float, str]
    by_length: Band
    by_position: Band


@dataclass(frozen=True)
class Extrapolation:
    """What a panel's models make of longer windows.

    Attributes:
        context: the training length.
        lengths: tokens at each multiple.
        rows: a scheme each, those that were evaluated.
        headline: the multiple to be compared with the training length; None if none beyond it has an entry.
        gaps: why there are multiples without an entry: schemes and multiples for each reason.
    """

    context: int
    lengths: Mapping[float, int]
    rows: tuple[LengthResult, ...]
    headline: float | None
    gaps: tuple[tuple[tuple[str, ...], tuple[float, ...], str], ...]


def extrapolation(arms: Sequence[Arm]) -> Extrapolation | None:
    """The arms in longer windows, or None if none of their runs was evaluated there."""
    rows = tuple(_row(arm, evaluated) for arm in arms if (evaluated := _evaluated(arm)))
    if not rows:
        return None
    first = next(one for arm in arms for one in _evaluated(arm))
    lengths = {entry.times: entry.length for entry in first.entries}
    beyond = [times for times in lengths if times > 1 and any(times in row.change for row in rows)]
    headline = HEADLINE if HEADLINE in beyond else max(beyond, default=None)
    return Extrapolation(first.context, lengths, rows, headline, tuple(_gaps(rows)))


def _evaluated(arm: Arm) -> list[Lengths]:
    return [run.lengths for run in arm.runs if run.lengths is not None]


def _row(arm: Arm, evaluated: Sequence[Lengths]) -> LengthResult:
    columns = zip(*(one.entries for one in evaluated), strict=True)
    entries = {column[0].times: column for column in columns if not any(entry.no_entry for entry in column)}
    bits = {times: [entry.bits_per_byte or 0.0 for entry in column] for times, column in entries.items()}
    means = {times: mean(values) for times, values in bits.items()}
    return LengthResult(
        arm.scheme,
        len(evaluated),
        len(arm.runs),
        means,
        {times: mean(np.subtract(values, bits[1.0])) for times, values in bits.items() if 1.0 in bits},
        {entry.times: entry.no_entry for one in evaluated for entry in one.entries if entry.no_entry},
        band(list(means), list(means.values())),
        _by_position(list(entries.values())),
    )


def _by_position(entries: Sequence[Sequence[AtLength]]) -> Band:
    """As far as every run has an entry.

    Positions up to the training length are those of the windows of that length, since there are more of these; the
    rest are those of the longest windows. They count from 1, so that they can be drawn on a logarithmic axis; a bucket
    stands at its geometric middle.
    """
    if not entries:
        return band([], [])
    runs = [list(_along(shortest, longest)) for shortest, longest in zip(entries[0], entries[-1], strict=True)]
    losses = zip(*([loss for _, loss in run] for run in runs), strict=True)
    return band([x for x, _ in runs[0]], [mean(column) for column in losses])


def _along(shortest: AtLength, longest: AtLength) -> Iterator[tuple[float, float]]:
    """Where each bucket stands, and its loss."""
    for entry, begin in ((shortest, 0), (longest, shortest.length)):
        for first, end, loss in zip(entry.edges[:-1], entry.edges[1:], entry.losses, strict=True):
            if first >= begin:
                yield math.sqrt((first + 1) * end), loss


def _gaps(rows: Sequence[LengthResult]) -> Iterator[tuple[tuple[str, ...], tuple[float, ...], str]]:
    """One for each scheme and reason, or for all schemes where they share it."""
    found: dict[tuple[str, tuple[float, ...]], list[str]] = {}
    for row in rows:
        for reason in dict.fromkeys(row.no_entry.values()):
            where = tuple(times for times, why in row.no_entry.items() if why == reason)
            found.setdefault((reason, where), []).append(row.scheme)
    for (reason, where), schemes in found.items():
        yield tuple(schemes), where, reason
