"""The figure of the claim map: N(D) over the budget."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from posenc.analysis.claim_map import BASELINE, Point
from posenc.report import formatting
from posenc.report.figures import STYLE, label

PUBLISHED = {
    "Su et al. 2021, BERT's encoding": (8.2e9, 2.2),
    "EleutherAI 2021, learned, a quarter into its run": (7.5e9, 1.32),
    "modded-nanogpt 2024, learned": (6.4e9, 1.19),
    "Press et al. 2021, sinusoidal: equal final loss": (21e9, 1.0),  # no ratio is published; that loss gives 1
}
"""The baseline's tokens to a loss, and how many times fewer the rotary arm needed, by source and baseline.

With other texts, tokenizers, sizes and baselines, and one seed each (docs/claims.md).
"""


_MAIN, _THIN, _GREY = "#d55e00", ("#009e73", "#cc79a7", "#56b4e9", "#7f7f7f"), "#b0b0b0"


@matplotlib.rc_context(STYLE)
def advantages(
    main: Sequence[Point],
    others: Mapping[str, Sequence[Point]],
    factors: Mapping[str, Sequence[Point]],
    ngrams: Mapping[int, float],
) -> Figure:
    """N(D) and, below it, the gap in nats at equal D, over the baseline's tokens.

    Args:
        main: RoPE over the baseline.
        others: RoPE over other baselines, by name; thin lines.
        factors: RoPE over the baseline in settings with one difference from the backbone, by setting; dots.
        ngrams: validation losses of n-gram models by order, marked on the upper axis.
    """
    fig = Figure(figsize=(8, 6.4), layout="constrained")
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    title = f"How many times fewer tokens RoPE needs than {BASELINE}"
    marks = "rings: seeds; bars: 95 % intervals; triangles: bounds; stars: published, other models and baselines"
    above.set_title(f"{title}\n{marks}", loc="left", fontsize=10)
    above.axhline(1, color="#1c1c1c", linewidth=0.9)
    measured = [(name, points) for name, points in others.items() if points]
    for color, (name, points) in zip(itertools.cycle(_THIN), measured, strict=False):
        _line(above, points, color, name, linewidth=1, marker="o", markersize=3)
    _seeds_of(above, main)
    _line(above, main, _MAIN, f"against {BASELINE}", linewidth=2.2, marker="o", markersize=5)
    for setting, points in factors.items():
        _dots(above, points, setting)
    for source, at in PUBLISHED.items():
        above.plot(*at, marker="*", markersize=11, color="#404040", linestyle="none")
        label(above, source, at, (-8, 3), ha="right", color="#404040")
    if above.get_legend_handles_labels()[0]:
        above.legend(loc="upper right", fontsize=9)
    above.set_xscale("log")
    above.set_yscale("log")
    above.set_ylim(top=max(4.5, above.get_ylim()[1]))  # leaves room for the legend above the published points
    above.set_ylabel("N, times fewer tokens")
    above.yaxis.set_major_locator(FixedLocator([0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4, 6]))
    above.yaxis.set_major_formatter("{x:g}")
    above.yaxis.set_minor_locator(NullLocator())
    _ngram_axis(above, main, ngrams)
    _gaps(below, main)
    below.set_xlabel(f"tokens that {BASELINE} was trained on")
    below.set_ylabel("nats per token\nbehind RoPE")
    return fig


def _line(axes: Any, points: Sequence[Point], color: str, name: str, **style: Any) -> None:
    """A labelled line through the finite points; grey where the baseline is on the plateau."""
    known = [point for point in points if 0 < point.advantage.value < math.inf]
    if not known:
        return
    name = f"{name}, {formatting.seeds_from([point.advantage.seeds for point in known])}"
    axes.plot([p.tokens for p in known], [p.advantage.value for p in known], color=color, label=name, **style)
    early = [point for point in known if point.plateau]
    axes.plot([p.tokens for p in early], [p.advantage.value for p in early], color=_GREY, **style, zorder=3)


def _seeds_of(axes: Any, points: Sequence[Point]) -> None:
    """A ring per seed, or a triangle at its bound if the loss lies outside RoPE's budgets; their interval."""
    for point in points:
        color = _GREY if point.plateau else _MAIN
        if point.advantage.interval:
            axes.vlines(point.tokens, *point.advantage.interval, color=color, alpha=0.3, linewidth=7)
        for value in point.by_seed.values():
            at, marker = {math.inf: (point.above, "^"), 0: (point.below, "v")}.get(value, (value, "o"))
            axes.plot(
                point.tokens, at, marker, color=color, markersize=6, fillstyle="none" if marker == "o" else "full"
            )


def _dots(axes: Any, points: Sequence[Point], name: str) -> None:
    for point in points:
        if 0 < point.advantage.value < math.inf:
            color = _GREY if point.plateau else "#606060"
            axes.plot(point.tokens, point.advantage.value, "o", color=color, markersize=4)
            at = (point.tokens, point.advantage.value)
            label(axes, name, at, (-6, 0), fontsize=7, ha="right", va="center", color=color)


def _gaps(axes: Any, points: Sequence[Point]) -> None:
    """Lines over the tokens; grey where the baseline is on the plateau."""
    known = [(point.tokens, point.gap, point.plateau) for point in points if point.gap is not None]
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    for drawn, color in ((known, _MAIN), ([point for point in known if point[2]], _GREY)):
        tokens, gaps = [point[0] for point in drawn], [point[1] for point in drawn]
        axes.plot(tokens, gaps, color=color, linewidth=2.2, marker="o", markersize=5)


def _ngram_axis(axes: Any, points: Sequence[Point], ngrams: Mapping[int, float]) -> None:
    """Ticks on the upper axis where the baseline has the loss of an n-gram model."""
    if len(points) < 2:
        return
    losses, tokens = [p.loss for p in points][::-1], [math.log(p.tokens) for p in points][::-1]
    inside = {order: loss for order, loss in ngrams.items() if losses[0] <= loss <= losses[-1]}
    top = axes.secondary_xaxis("top")
    top.set_xticks([math.exp(np.interp(loss, losses, tokens)) for loss in inside.values()])
    top.set_xticklabels([str(order) for order in inside], fontsize=8)
    top.set_xlabel("order of the n-gram model with the baseline's loss", fontsize=8, loc="left")
    top.minorticks_off()
