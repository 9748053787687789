"""The figure of the claim map: N(D) over the budget, the gap in nats, and N in other settings and publications."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from posenc.analysis.claim_map import ROPE, SINUSOID, Point, tokens_to
from posenc.report import formatting
from posenc.report.claim_map.losses import over_budgets
from posenc.report.figures import STYLE, label
from posenc.report.looks import looks, titled

PUBLISHED_RATIOS = {
    "Su et al. 2021, BERT's encoding, 8.2B": 2.2,
    "EleutherAI 2021, learned, a quarter into its run, 7.5B": 1.32,
    "modded-nanogpt 2024, learned, 6.4B": 1.19,
    "Press et al. 2021, sinusoidal: equal final loss, 21B": 1.0,  # no ratio is published; that loss gives 1
}
"""How many times fewer tokens the rotary arm needed, by source, baseline and the baseline's tokens.

With other texts, tokenizers, sizes and baselines, and one seed each (docs/claims.md).
"""

_RATIOS = (0.3, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 3, 4, 6, 10)
_MAIN, _GREY, _DARK = "#d55e00", "#b0b0b0", "#303030"


@matplotlib.rc_context(STYLE)
def advantages(
    main: Sequence[Point],
    others: Mapping[str, Sequence[Point]],
    different: Mapping[str, Mapping[str, Sequence[Point]]],
    ngrams: Mapping[int, float],
) -> Figure:
    """N(D) and the gap in nats at equal D, over the baseline's tokens; below them, N by setting and by publication.

    Args:
        main: RoPE over the baseline.
        others: RoPE over other baselines, by scheme; thin lines.
        different: RoPE over one baseline, by heading and by what differs from `main`; a row per budget.
        ngrams: validation losses of n-gram models by order, marked on the upper axis.
    """
    groups = {heading: rows for heading, by_name in different.items() if (rows := _by_budget(by_name))}
    heights = (
        6 + 0.1 * len(others),
        0.8 + 0.19 * (sum(len(rows) + 1 for rows in groups.values()) + len(PUBLISHED_RATIOS)),
    )
    fig = Figure(figsize=(8, sum(heights)), layout="constrained")
    parts: Any = fig.subfigures(2, 1, height_ratios=heights)
    upper, lower = parts
    above, below = upper.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    over_budgets(above, {point.tokens for point in main})
    _over_tokens(above, main, others)
    _ngram_axis(above, main, ngrams)
    _gaps(below, main)
    _rows(lower.subplots(), groups)
    upper.legend(loc="outside lower center", ncols=2, fontsize=9)
    title = f"How many times fewer tokens {titled(ROPE)} needs than the {titled(SINUSOID)}"
    elsewhere = itertools.chain.from_iterable(rows.values() for rows in groups.values())
    upper.suptitle("\n".join([title, *_key([*main, *elsewhere])]), fontsize=10)
    return fig


def _key(points: Sequence[Point]) -> list[str]:
    """What the marks of these points mean, in one or two lines."""
    marks = {
        "rings: seeds; lines: their means": True,
        "bars: 95 % intervals": any(point.advantage.interval for point in points),
        "triangles: N is higher or lower than this": not all(point.has_ratio for point in points),
    }
    plateau = any(point.plateau for point in points)
    lines = ["; ".join(mark for mark, drawn in marks.items() if drawn)]
    return [*lines, *(["light grey: the baseline is on the bigram model's plateau"] if plateau else [])]


def _over_tokens(axes: Any, main: Sequence[Point], others: Mapping[str, Sequence[Point]]) -> None:
    axes.axhline(1, color="#1c1c1c", linewidth=0.9)
    _seeds_of(axes, main)
    _line(axes, main, f"against {titled(SINUSOID)}", color=_MAIN, linewidth=2.2, marker="o", markersize=5)
    look, markers = looks(others), dict(zip(others, itertools.cycle("DsPXh^v"), strict=False))
    middle = (len(others) - 1) / 2
    for place, (pos, points) in enumerate(others.items()):
        beside = axes.transData + ScaledTranslation(3 * (place - middle) / 72, 0, axes.figure.dpi_scale_trans)
        style = {"color": look[pos].colour, "fillstyle": "none", "markersize": 5, "zorder": 3, "transform": beside}
        line = {"linestyle": look[pos].linestyle, "linewidth": 1, "marker": markers[pos]}
        _line(axes, points, f"against {titled(pos)}", **line, **style)
        for point in points:
            for at, marker in _bounds(point):
                axes.plot(point.tokens, at, marker, **style)
    drawn = itertools.chain(main, *others.values())
    axes.update_datalim([(point.tokens, point.bound) for point in drawn])  # matplotlib leaves out what is moved
    axes.set_yscale("log")
    _ratios(axes.yaxis)
    axes.set_ylim(min(0.6, axes.get_ylim()[0]), 1.1 * axes.get_ylim()[1])
    axes.set_ylabel("N, times fewer tokens")
    axes.margins(x=0.06)


def _bounds(point: Point) -> list[tuple[float, str]]:
    """The bound of an N that is not known, with its marker; both bounds if seeds disagree."""
    if {0, math.inf} <= set(point.by_seed.values()):
        return [(point.below, "v"), (point.above, "^")]
    return [(point.bound, {math.inf: "^", 0: "v"}.get(point.advantage.value, ""))]


def _ratios(axis: Any) -> None:
    axis.set_major_locator(FixedLocator(_RATIOS))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _line(axes: Any, points: Sequence[Point], name: str, **style: Any) -> None:
    """A labelled line through the finite points."""
    name = f"{name}, {formatting.seeds_from([point.advantage.seeds for point in points])}"
    known = [point for point in points if point.has_ratio]
    axes.plot([point.tokens for point in known], [point.advantage.value for point in known], label=name, **style)


def _seeds_of(axes: Any, points: Sequence[Point]) -> None:
    """A ring per seed, or a triangle at its bound if the loss lies outside RoPE's budgets; their interval."""
    for point in points:
        color = _GREY if point.plateau else _MAIN
        if point.advantage.interval:
            axes.vlines(point.tokens, *point.advantage.interval, color=color, alpha=0.3, linewidth=7)
        for at, marker, fill in _by_seed(point, "v", "^"):
            axes.plot(point.tokens, at, marker, color=color, markersize=6, fillstyle=fill)


def _by_seed(point: Point, lower: str, higher: str) -> Iterator[tuple[float, str, Any]]:
    """N of each seed with a ring's marker and fill, or its bound with those of a triangle."""
    for value in point.by_seed.values():
        yield {math.inf: (point.above, higher, "full"), 0: (point.below, lower, "full")}.get(
            value, (value, "o", "none")
        )


def _by_budget(points: Mapping[str, Sequence[Point]]) -> dict[str, Point]:
    """A row for each budget, named by what differs and the baseline's tokens."""
    return {
        f"{titled(name)}, {formatting.millions(point.tokens)}{' (plateau)' if point.plateau else ''}": point
        for name, of_budgets in points.items()
        for point in of_budgets
    }


def _rows(axes: Any, groups: Mapping[str, Mapping[str, Point]]) -> None:
    """Under a heading for each group a row for each of our settings, and at the end one for each publication."""
    places: dict[str, int] = {}
    headings: dict[str, int] = {}
    lines = itertools.count()
    for heading, names in {**groups, "Published: other models, other measures": PUBLISHED_RATIOS}.items():
        headings[heading] = next(lines)
        places |= {name: next(lines) for name in names}
    for points in groups.values():
        for name, point in points.items():
            _row(axes, places[name], point)
    axes.plot([*PUBLISHED_RATIOS.values()], [places[name] for name in PUBLISHED_RATIOS], "*", color=_DARK, markersize=9)
    axes.axvline(1, color="#1c1c1c", linewidth=0.9, zorder=1)
    axes.set_yticks([*places.values()], [*places], fontsize=9)
    axes.set_ylim(next(lines) - 0.3, -0.5)
    axes.margins(x=0.06)
    for text, line in headings.items():
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        style = {"xycoords": ("subfigure fraction", "data"), "fontsize": 9, "fontweight": "bold", "bbox": white}
        label(axes, text, (0.01, line), (0, 0), va="center", **style)
    axes.set_xscale("log")
    _ratios(axes.xaxis)
    axes.set_xlabel("N, times fewer tokens (beside each name: the baseline's tokens)", loc="right")


def _row(axes: Any, at: int, point: Point) -> None:
    """A ring per seed, or a triangle at its bound; their interval."""
    for value, marker, fill in _by_seed(point, "<", ">"):
        axes.plot(value, at, marker, color=_GREY if point.plateau else _DARK, markersize=6, fillstyle=fill)
    if point.advantage.interval:
        axes.hlines(at, *point.advantage.interval, color=_DARK, linewidth=1.2)


def _gaps(axes: Any, points: Sequence[Point]) -> None:
    """A ring per seed and a line through the means; grey where the baseline is on the plateau."""
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    own = [point for point in points if point.arm_losses]
    gaps = [[*point.gaps.values()] for point in own]
    axes.plot([point.tokens for point in own], [statistics.fmean(seeds) for seeds in gaps], color=_MAIN, linewidth=1.6)
    for point, seeds in zip(own, gaps, strict=True):
        color = _GREY if point.plateau else _MAIN
        axes.plot([point.tokens] * len(seeds), seeds, "o", color=color, markersize=6, fillstyle="none")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.yaxis.set_major_locator(FixedLocator([-1, -0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3, 1]))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if low < 0:
        axes.set_ylim(bottom=min(low, -0.055))  # with the tick at -0.05
    axes.set_ylabel(
        f"{titled(SINUSOID)} minus {titled(ROPE)},\nnats per token{', log above 0.1' if high > 0.1 else ''}"
    )
    axes.set_xlabel(f"million training tokens of the {titled(SINUSOID)}")


def _ngram_axis(axes: Any, points: Sequence[Point], ngrams: Mapping[int, float]) -> None:
    """Ticks on the upper axis where the baseline has the loss of an n-gram model."""
    baseline = {point.tokens: point.loss for point in points}
    tokens = {order: tokens_to(baseline, loss) for order, loss in ngrams.items()}
    inside = {str(order): at for order, at in tokens.items() if 0 < at < math.inf}
    if not inside:
        return
    top = axes.secondary_xaxis("top")
    top.set_xticks([*inside.values()], [*inside], fontsize=9)
    top.set_xlabel("order of the n-gram model with the baseline's loss", fontsize=9, loc="left")
    top.minorticks_off()
