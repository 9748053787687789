"""The claim map as a figure and a table."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posenc.analysis.claim_map import Point, growth, off_plateau, trend
from posenc.analysis.convergence import Estimate
from posenc.analysis.results import Result, pooled_sd, seeds_needed
from posenc.report import formatting
from posenc.report.figures import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Star:
    """A published result: the baseline's tokens to a loss, and how many times fewer the rotary arm needed."""

    tokens: float
    ratio: float
    source: str


PUBLISHED = (
    Star(8.2e9, 2.2, "Su et al. 2021"),
    Star(7.5e9, 1.32, "EleutherAI 2021"),  # a quarter into the baseline's run; the others are at its end
    Star(6.4e9, 1.19, "modded-nanogpt 2024"),
    Star(21e9, 1.0, "Press et al. 2021"),
)
"""With other texts, tokenizers, sizes and baselines, and one seed each (docs/claims.md)."""

INTRODUCTION = """\
How many times fewer tokens RoPE needs to reach the loss that the sinusoid has at the end of training, by budget
([protocol](../../docs/protocol.md)). `runs.csv` has a row for each run, `curves.csv` every validation, `plan.yaml`
the planned runs. Intervals are Student's t over seeds, and cover seeds only; with fewer than three seeds there is no
interval and no verdict. Generated with `python -m posenc.claim_map`."""

_MAIN, _THIN, _GREY = "#d55e00", ("#009e73", "#cc79a7", "#56b4e9", "#7f7f7f"), "#b0b0b0"


def figure(
    main: Sequence[Point],
    others: Mapping[str, Sequence[Point]],
    factors: Mapping[str, Sequence[Point]],
    baseline: str,
    ngrams: Mapping[int, float],
) -> "Figure":
    """N(D) and, below it, the gap in nats at equal D, over the baseline's tokens.

    Args:
        main: RoPE over the baseline.
        others: RoPE over other baselines, by name; thin lines.
        factors: RoPE over the baseline in settings with one difference from the backbone, by setting; dots.
        baseline: its name.
        ngrams: validation losses of n-gram models by order, marked on the upper axis.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        fig = Figure(figsize=(8, 6.4), layout="constrained")
        above, below = fig.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        title = f"How many times fewer tokens RoPE needs than {baseline}"
        marks = "rings: seeds; bars: 95 % intervals over seeds; triangles: bounds"
        above.set_title(f"{title}\n{marks}", loc="left", fontsize=10)
        above.axhline(1, color="#1c1c1c", linewidth=0.9)
        measured = [(name, points) for name, points in others.items() if points]
        for color, (name, points) in zip(itertools.cycle(_THIN), measured, strict=False):
            _line(above, points, color, f"than {name}", linewidth=1, marker="o", markersize=3)
        _seeds_of(above, main)
        _line(above, main, _MAIN, f"than {baseline}", linewidth=2.2, marker="o", markersize=5)
        for setting, points in factors.items():
            _dots(above, points, setting)
        for star in PUBLISHED:
            above.plot(star.tokens, star.ratio, marker="*", markersize=11, color="#404040", linestyle="none")
            above.annotate(
                star.source, (star.tokens, star.ratio), xytext=(-8, 3), textcoords="offset points",
                ha="right", fontsize=8, color="#404040",
            )  # fmt: skip
        if above.get_legend_handles_labels()[0]:
            above.legend(loc="upper right", fontsize=9)
        above.set_xscale("log")
        above.set_yscale("log")
        above.set_ylabel("N, times fewer tokens")
        above.yaxis.set_major_locator(matplotlib.ticker.FixedLocator([0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4, 6]))
        above.yaxis.set_major_formatter("{x:g}")
        above.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        _ngram_axis(above, main, ngrams)
        _gaps(below, main)
        below.set_xlabel(f"tokens that {baseline} was trained on")
        below.set_ylabel("nats per token\nbehind RoPE")
    return fig


def _line(axes: Any, points: Sequence[Point], color: str, label: str, **style: Any) -> None:
    """A labelled line through the finite points; grey where the baseline is on the plateau."""
    known = [point for point in points if 0 < point.advantage.value < math.inf]
    if not known:
        return
    axes.plot([p.tokens for p in known], [p.advantage.value for p in known], color=color, label=label, **style)
    early = [point for point in known if point.plateau]
    axes.plot([p.tokens for p in early], [p.advantage.value for p in early], color=_GREY, **style, zorder=3)


def _seeds_of(axes: Any, points: Sequence[Point]) -> None:
    """A ring per seed, or a triangle at its bound if the loss lies outside RoPE's budgets; their interval."""
    for point in points:
        color = _GREY if point.plateau else _MAIN
        if point.advantage.low is not None:
            axes.vlines(point.tokens, point.advantage.low, point.advantage.high, color=color, alpha=0.3, linewidth=7)
        for value in point.by_seed.values():
            at, marker = {math.inf: (point.above, "^"), 0: (point.below, "v")}.get(value, (value, "o"))
            axes.plot(
                point.tokens, at, marker, color=color, markersize=6, fillstyle="none" if marker == "o" else "full"
            )


def _dots(axes: Any, points: Sequence[Point], label: str) -> None:
    for point in points:
        if 0 < point.advantage.value < math.inf:
            color = _GREY if point.plateau else "#606060"
            axes.plot(point.tokens, point.advantage.value, "o", color=color, markersize=4)
            axes.annotate(
                label, (point.tokens, point.advantage.value), xytext=(-6, 0), textcoords="offset points", fontsize=7,
                ha="right", va="center", color=color,
            )  # fmt: skip


def _gaps(axes: Any, points: Sequence[Point]) -> None:
    """Lines over the tokens; grey where the baseline is on the plateau."""
    known = [(point.tokens, point.gap, point.plateau) for point in points if point.gap is not None]
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    for drawn, color in ((known, _MAIN), ([point for point in known if point[2]], _GREY)):
        tokens, gaps = [point[0] for point in drawn], [point[1] for point in drawn]
        axes.plot(tokens, gaps, color=color, linewidth=2.2, marker="o", markersize=5)


def _ngram_axis(axes: Any, points: Sequence[Point], ngrams: Mapping[int, float]) -> None:
    """Ticks on the upper axis where the baseline has the loss of an n-gram model."""
    import numpy as np

    if len(points) < 2:
        return
    losses, tokens = [p.loss for p in points][::-1], [math.log(p.tokens) for p in points][::-1]
    inside = {order: loss for order, loss in ngrams.items() if losses[0] <= loss <= losses[-1]}
    top = axes.secondary_xaxis("top")
    top.set_xticks([math.exp(np.interp(loss, losses, tokens)) for loss in inside.values()])
    top.set_xticklabels([str(order) for order in inside], fontsize=8)
    top.set_xlabel("order of the n-gram model with the baseline's loss", fontsize=8, loc="left")
    top.minorticks_off()


def write_up(results: Sequence[Result], points: Sequence[Point], others: Mapping[str, Sequence[Point]]) -> list[str]:
    """The paragraphs on one corpus, in Markdown; arguments as in `figure`."""
    written = []
    unit = min(result.tokens for result in results)
    if points:
        written.append(table(points, unit))
    for name, against in others.items():
        if against:
            written += [f"Against {name}:", table(against, unit)]
    if changed := growth(points):
        written.append(last_change(*changed))
    if fitted := trend(points):
        written.append(slope(fitted))
    budgets: dict[str, set[int]] = {}
    for result in results:
        budgets.setdefault(result.pos, set()).add(result.tokens)
    arms = sorted(pos for pos, trained in budgets.items() if len(trained) > 1)
    spreads = {pos: pooled_sd(off_plateau(result for result in results if result.pos == pos)) for pos in arms}
    known = {pos: (sd, freedom) for pos, (sd, freedom) in spreads.items() if freedom}
    if known:
        each = ", ".join(
            f"{pos} {sd:.4f} ({freedom} degrees of freedom, {seeds_needed(sd, 0.01):,} seeds)"
            for pos, (sd, freedom) in known.items()
        )
        written.append(
            "SD of the final loss over seeds in nats, pooled over the budgets and settings of an arm off the bigram "
            f"model's plateau, and the seeds for which the 95 % interval of a mean is at most ± 0.01 nats: {each}."
        )
    errors = [result.val_loss_se for result in results if math.isfinite(result.val_loss_se)]
    if errors:
        written.append(
            f"Each final loss has a standard error of {statistics.median(errors):.4f} nats over validation windows "
            "(median over runs). All runs use the same windows, so differences are more precise."
        )
    return written


def table(points: Sequence[Point], unit: int) -> str:
    """One row per budget, in Markdown."""
    lines = [
        "| budget | tokens | the baseline's loss (lowest to highest seed) | RoPE's | nats behind RoPE | "
        "times fewer tokens (95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for point in points:
        fewer = ratio(point, unit) + (" (plateau)" if point.plateau else "")
        gaps = " | " if point.gap is None else f"{statistics.fmean(point.own.values()):.3f} | {point.gap:.3f}"
        lines.append(f"| {point.tokens / unit:g} | {point.tokens:,} | {_range(point.losses)} | {gaps} | {fewer} |")
    return "\n".join(lines)


def _range(losses: Mapping[int, float]) -> str:
    """The mean over seeds, and the lowest and highest."""
    mean, low, high = statistics.fmean(losses.values()), min(losses.values()), max(losses.values())
    return f"{mean:.3f} ({low:.3f} to {high:.3f})" if len(losses) > 1 else f"{mean:.3f}"


def ratio(point: Point, unit: int) -> str:
    """N as text: its mean and interval, or each seed's where one of them has none.

    Args:
        unit: tokens in a unit of budget.
    """
    value, each = point.advantage.value, sorted(point.by_seed.values())
    if 0 < value < math.inf:
        return f"{value:.2f}{_interval(point.advantage)}, {formatting.seeds(len(each))}"
    numbers = [f"{n:.2f}" for n in each if 0 < n < math.inf]
    outside = {
        f"RoPE needs under {point.tokens / point.above / unit:g} unit": each.count(math.inf),
        f"RoPE needs over {point.tokens / point.below / unit:g} units": each.count(0),
    }
    return ", ".join([*numbers, *(text + _in_seeds(count, len(each)) for text, count in outside.items() if count)])


def _in_seeds(count: int, seeds: int) -> str:
    return "" if count == seeds else f" in {count} of {seeds} seeds"


def last_change(before: int, after: int, ratio: Estimate) -> str:
    """`growth` in a sentence."""
    return (
        f"From {before:,} to {after:,} tokens N changes by a factor of {ratio.value:.2f}{_interval(ratio)}, "
        f"paired over {formatting.seeds(ratio.seeds)}."
    )


def slope(b: Estimate) -> str:
    """The trend in a sentence."""
    return (
        "Over the budgets off the plateau where every seed has an N, log N = a + b log D has "
        f"b = {b.value:.3f}{_interval(b, 3)}, {formatting.seeds(b.seeds)}: "
        f"each doubling of the budget changes N by {2**b.value - 1:+.1%}."
    )


def _interval(estimate: Estimate, digits: int = 2) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"
