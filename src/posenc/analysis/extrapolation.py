"""Length extrapolation: results of each scheme in windows longer than in training, over seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.arms import Arm
from posenc.analysis.convergence import Band, Estimate, band, mean
from posenc.storage.lengths_file import LengthResult, Lengths

HEADLINE = 2.0
"""The multiple of the training length to report, if it was evaluated."""


@dataclass(frozen=True)
class SchemeExtrapolation:
    """The results of one scheme.

    Attributes:
        scheme: its name.
        evaluated, seeds: number of evaluated runs, and of all runs.
        bits: bits per byte at each multiple of the training length that was evaluated.
        change: bits per byte there minus those at the training length, seed by seed.
        no_entry: why other multiples were not evaluated.
        by_length: bits per byte by multiple.
        by_position: loss in nats per token by position in the window.
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
    """The results of a panel in longer windows.

    Attributes:
        context: the training length.
        lengths: tokens at each multiple.
        rows: one per evaluated scheme.
        headline: the multiple to report; None if no longer window was evaluated.
    """

    context: int
    lengths: Mapping[float, int]
    rows: tuple[SchemeExtrapolation, ...]
    headline: float | None


def extrapolation(arms: Sequence[Arm]) -> Extrapolation | None:
    """The arms in longer windows; None if none of their runs was evaluated."""
    rows = tuple(_row(arm, evaluated) for arm in arms if (evaluated := _evaluated(arm)))
    if not rows:
        return None
    first = next(one for arm in arms for one in _evaluated(arm))
    lengths = {entry.times: entry.length for entry in first.entries}
    beyond = [times for times in lengths if times > 1 and any(times in row.change for row in rows)]
    headline = HEADLINE if HEADLINE in beyond else max(beyond, default=None)
    return Extrapolation(first.context, lengths, rows, headline)


def _evaluated(arm: Arm) -> list[Lengths]:
    return [run.lengths for run in arm.runs if run.lengths is not None]


def _row(arm: Arm, evaluated: Sequence[Lengths]) -> SchemeExtrapolation:
    columns = zip(*(one.entries for one in evaluated), strict=True)
    entries = {column[0].times: column for column in columns if not any(entry.no_entry for entry in column)}
    bits = {times: [entry.bits_per_byte or 0.0 for entry in column] for times, column in entries.items()}
    means = {times: mean(values) for times, values in bits.items()}
    return SchemeExtrapolation(
        arm.scheme,
        len(evaluated),
        len(arm.runs),
        means,
        {times: mean(np.subtract(values, bits[1.0])) for times, values in bits.items() if 1.0 in bits},
        {entry.times: entry.no_entry for one in evaluated for entry in one.entries if entry.no_entry},
        band(list(means), list(means.values())),
        _by_position(list(entries.values())),
    )


def _by_position(entries: Sequence[Sequence[LengthResult]]) -> Band:
    """Loss by position, up to the length at which every run was evaluated.

    Positions up to the training length are taken from windows of that length, since there are more of these; the rest
    from the longest windows. They count from 1, for a logarithmic axis; a bucket is at its geometric mean.
    """
    if not entries:
        return band([], [])
    runs = [list(_along(shortest, longest)) for shortest, longest in zip(entries[0], entries[-1], strict=True)]
    losses = zip(*([loss for _, loss in run] for run in runs), strict=True)
    return band([x for x, _ in runs[0]], [mean(column) for column in losses])


def _along(shortest: LengthResult, longest: LengthResult) -> Iterator[tuple[float, float]]:
    """The position of each bucket, and its loss."""
    for entry, begin in ((shortest, 0), (longest, shortest.length)):
        for first, end, loss in zip(entry.edges[:-1], entry.edges[1:], entry.losses, strict=True):
            if first >= begin:
                yield math.sqrt((first + 1) * end), loss
