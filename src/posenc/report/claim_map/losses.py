"""The figure of the claim map's final losses: a dot for each run, and N(D) as arrows between two lines."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence, Set
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation

from posenc.analysis.claim_map import ROPE, SINUSOID, Point, compared, from_reversal
from posenc.analysis.results import Result
from posenc.report import formatting
from posenc.report.figures import STYLE, label, legend
from posenc.report.looks import looks, titled


@matplotlib.rc_context(STYLE)
def losses(results: Sequence[Result], points: Sequence[Point], alternatives: Mapping[str, Sequence[Result]]) -> Figure:
    """The final loss of each run over its tokens, and beside it the same on the scale of the budgets in `compared`.

    Args:
        results: of RoPE and the baseline; a dot per run, a line through the medians over seeds.
        points: N(D) of RoPE over the baseline; an arrow each, in the second panel.
        alternatives: runs with other hyperparameters or seeds, and of other schemes, by name. Those of these two are
            drawn hollow, beside the dots, in the second panel, but for the budgets in `from_reversal`, which are in
            the figure of `reversals`.
    """
    near = compared(points)
    enlarged = 1 < len(near) < len(points)
    tokens = {point.tokens for point in near}
    hollow = [run for run in _hollow(alternatives, points) if run.tokens in tokens or not enlarged]
    fig = Figure(figsize=(8, 4.4), layout="constrained")
    drawn = fig.subplots(1, 1 + enlarged, squeeze=False)[0]
    closest = drawn[-1]
    for axes in drawn:
        _runs(axes, results)
        over_budgets(axes, {result.tokens for result in results})
        axes.set_xlabel("million training tokens of the run")
    _beside(closest, hollow, {result.seed for result in results})
    several = [point for point in (near if enlarged else points) if point.advantage.seeds > 1]
    arrows = [point for point in several if point.has_ratio and min(point.by_seed.values()) > 1]
    for point in arrows:
        _arrow(closest, point)
    _bigram(drawn[0], results)
    if enlarged:
        shown = [result for result in (*results, *hollow) if result.tokens in tokens]
        _enlarge(closest, shown, arrows)
        (left, right), (low, high) = closest.get_xlim(), closest.get_ylim()
        right = min(right, drawn[0].get_xlim()[1])
        drawn[0].indicate_inset((left, low, right - left, high - low), edgecolor="#1c1c1c")
        closest.set_title("the frame on the left, enlarged", loc="left", fontsize=9)
    drawn[0].set_ylabel("final validation loss, nats per token")
    title = ["Each dot is a run, trained to the end of its schedule; lines: medians over seeds"]
    if arrows:
        title.append(f"arrows: how many times fewer tokens {titled(ROPE)} needs for the same loss")
    fig.suptitle("\n".join(title), fontsize=10)
    legend(fig, 3, fontsize=9, columnspacing=1, handlelength=2.2, handletextpad=0.5)
    return fig


def _hollow(alternatives: Mapping[str, Sequence[Result]], points: Sequence[Point]) -> list[Result]:
    """The alternatives' runs of both arms, each once though it may have several names, before the reversal."""
    runs, later = dict.fromkeys(itertools.chain(*alternatives.values())), from_reversal(points)
    return [run for run in runs if run.pos in (ROPE, SINUSOID) and run.tokens not in later]


def over_budgets(axes: Any, budgets: set[int]) -> None:
    """A logarithmic axis of tokens with a tick at each budget, in millions.

    The name is a line lower where it is less than twice the one before on its line.
    """
    named: list[int] = []
    for tokens in sorted(budgets):
        if not named or tokens >= 2 * named[-1]:
            named.append(tokens)
    names = [
        ("" if tokens in named else "\n") + formatting.millions(tokens).removesuffix("M") for tokens in sorted(budgets)
    ]
    axes.set_xscale("log")
    axes.set_xticks(sorted(budgets), names, fontsize=9)
    axes.minorticks_off()


def _runs(axes: Any, results: Sequence[Result]) -> None:
    look = looks([ROPE, SINUSOID])
    for pos in (SINUSOID, ROPE):
        by_budget: dict[int, list[float]] = {}
        for result in sorted(results, key=lambda result: result.tokens):
            if result.pos == pos:
                by_budget.setdefault(result.tokens, []).append(result.val_loss)
        medians = [statistics.median(found) for found in by_budget.values()]
        line = {"color": look[pos].colour, "linestyle": look[pos].linestyle, "linewidth": 1.6}
        axes.plot([*by_budget], medians, label=titled(pos), **line)
        for tokens, found in by_budget.items():
            dot = {"markersize": 5, "alpha": 0.65, "markeredgewidth": 0}
            axes.plot([tokens] * len(found), found, "o", color=look[pos].colour, **dot)


def _beside(axes: Any, runs: Sequence[Result], seeds: Set[int]) -> None:
    """Hollow markers to the right of the dots: further settings with these seeds, and replications with others."""
    look = looks([ROPE, SINUSOID])
    for name, marker, points, replicates in (("other settings", "D", 6, False), ("replications", "P", 12, True)):
        aside = axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
        for pos in (SINUSOID, ROPE):
            own = [run for run in runs if run.pos == pos and (run.seed not in seeds) == replicates]
            style = {"color": look[pos].colour, "markersize": 5, "fillstyle": "none", "transform": aside}
            if own:
                at = [run.tokens for run in own], [run.val_loss for run in own]
                axes.plot(*at, marker, label=f"{titled(pos)}, {name}", **style)


def _bigram(axes: Any, results: Sequence[Result]) -> None:
    loss = statistics.fmean(result.bigram_loss for result in results)
    low, high = axes.get_ylim()
    if math.isnan(loss) or loss - high > high - low:  # otherwise the runs would share the lower half of the axis
        return
    axes.axhline(loss, color="#8c8c8c", linewidth=0.9, linestyle=(0, (2, 2)))
    at = {"xycoords": ("axes fraction", "data"), "ha": "right", "fontsize": 9, "color": "#606060"}
    label(axes, "bigram model", (1, loss), (0, 3), **at)


def _arrow(axes: Any, point: Point) -> None:
    """From the baseline's budget to RoPE's, at the baseline's median loss; N above its middle."""
    loss, needed = statistics.median(point.baseline_losses.values()), point.tokens / point.advantage.value
    axes.annotate("", (needed, loss), (point.tokens, loss), arrowprops={"arrowstyle": "->", "color": "#1c1c1c"})
    middle = math.sqrt(needed * point.tokens)
    style = {"ha": "center", "fontsize": 9, "color": "#1c1c1c"}
    over_lines = [withStroke(linewidth=3, foreground="w")]
    label(axes, f"{point.advantage.value:.2f}x", (middle, loss), (0, 3), path_effects=over_lines, **style)


def _enlarge(axes: Any, results: Sequence[Result], arrows: Sequence[Point]) -> None:
    """Limits that some runs fill, and the arrows."""
    ends = [result.val_loss for result in results]
    low, high = min(ends), max(ends)
    axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    tokens = [result.tokens for result in results]
    first = min([*tokens, *(point.tokens / point.advantage.value for point in arrows)])
    axes.set_xlim(first / 1.15, max(tokens) * 1.15)
