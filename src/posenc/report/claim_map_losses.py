"""The figure of the claim map's final losses: a dot for each run, and N(D) as arrows between two lines."""

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from posenc.analysis.claim_map import ARM, BASELINE, Point
from posenc.analysis.results import Result
from posenc.report import formatting
from posenc.report.figures import STYLE, label
from posenc.report.looks import NAMES, looks


@matplotlib.rc_context(STYLE)
def losses(results: Sequence[Result], points: Sequence[Point], alternatives: Mapping[str, Sequence[Result]]) -> Figure:
    """The final loss of each run over its tokens, and beside it the same on the scale of the budgets in `compared`.

    The runs of a budget at which the baseline ends lower have a panel of their own beneath, a row for each arm.

    Args:
        results: of RoPE and the baseline; a dot per run, a line through the medians over seeds.
        points: N(D) of RoPE over the baseline; an arrow each, in the second panel.
        alternatives: runs of these arms with other hyperparameters, or of other schemes, by name; hollow, beside the
            dots, in the second panel, but for those in a row; of other schemes there are rows alone.
    """
    near = compared(points)
    enlarged = 1 < len(near) < len(points)
    reversed_at = [point.tokens for point in points if point.gap is not None and point.gap < 0]
    strips = {tokens: _rows(results, alternatives, tokens) for tokens in reversed_at}
    elsewhere = {name: [run for run in runs if run.tokens not in strips] for name, runs in alternatives.items()}
    beside = {name: runs for name, runs in elsewhere.items() if runs and runs[0].pos in (ARM, BASELINE)}
    numbers = [len(rows) for rows in strips.values()]
    heights = [4.4, 0.23 * sum(numbers) + 0.5 * len(numbers) + 0.4] if strips else [4.4]
    whole = Figure(figsize=(8, sum(heights)), layout="constrained")
    fig, *beneath = whole.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    *_, closest = drawn = fig.subplots(1, 1 + enlarged, squeeze=False)[0]
    for axes in drawn:
        _runs(axes, results, beside if axes is closest else {})
        over_budgets(axes, {result.tokens for result in results})
        axes.set_xlabel("million training tokens of the run")
    several = [point for point in (near if enlarged else points) if point.advantage.seeds > 1]
    arrows = [point for point in several if point.has_ratio and min(point.by_seed.values()) > 1]
    for point in arrows:
        _arrow(closest, point)
    _bigram(drawn[0], results)
    if enlarged:
        tokens = {point.tokens for point in near}
        shown = [result for result in (*results, *itertools.chain(*beside.values())) if result.tokens in tokens]
        _enlarge(closest, shown, arrows)
        (left, right), (low, high) = closest.get_xlim(), closest.get_ylim()
        drawn[0].indicate_inset((left, low, right - left, high - low), edgecolor="#1c1c1c")
        closest.set_title("the frame on the left, enlarged", loc="left", fontsize=9)
    drawn[0].set_ylabel("final validation loss, nats per token")
    fig.suptitle(
        "Each dot is a run, trained to the end of its schedule; lines: medians over seeds\n"
        f"arrows: how many times fewer tokens {titled(ARM)} needs for the same loss",
        fontsize=10,
    )
    fig.legend(*closest.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    for one in beneath:
        stacked = one.subplots(len(strips), 1, squeeze=False, sharex=True, height_ratios=numbers)[:, 0]
        for axes, (budget, rows) in zip(stacked, strips.items(), strict=True):
            _strip(axes, rows, f"the runs of {formatting.millions(budget)} tokens; bars: means")
        stacked[-1].set_xlabel("final validation loss, nats per token")
    return whole


def _rows(
    results: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], tokens: int
) -> list[tuple[str, list[Result]]]:
    """The runs of one budget by the name of their arm, by rising mean loss."""
    arms = {pos: [run for run in results if run.pos == pos] for pos in (BASELINE, ARM)} | dict(alternatives)
    rows = [(name, [run for run in runs if run.tokens == tokens]) for name, runs in arms.items()]
    return sorted((row for row in rows if row[1]), key=lambda row: statistics.fmean(run.val_loss for run in row[1]))


def _strip(axes: Any, rows: Sequence[tuple[str, Sequence[Result]]], title: str) -> None:
    """A row of dots for each arm, the lowest loss at the top."""
    look = looks([runs[0].pos for _, runs in rows])
    for height, (_, runs) in enumerate(rows):
        ends = [run.val_loss for run in runs]
        colour = look[runs[0].pos].colour
        axes.plot(ends, [height] * len(ends), "o", color=colour, markersize=5, alpha=0.65, markeredgewidth=0)
        axes.plot([statistics.fmean(ends)] * 2, [height - 0.3, height + 0.3], color=colour, linewidth=1.6)
    names = [name if (rate := f"learning rate {runs[0].lr:g}") in name else f"{name}, {rate}" for name, runs in rows]
    axes.set_yticks(range(len(rows)), [titled(name) for name in names], fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=9)


def compared(points: Sequence[Point]) -> list[Point]:
    """Those off the plateau at which no seed of the baseline ends above RoPE's smallest budget.

    Before them the baseline's loss falls too steeply to show how near the arms are.
    """
    return [point for point in points if not point.plateau and math.inf not in point.by_seed.values()]


def over_budgets(axes: Any, budgets: set[int]) -> None:
    """A logarithmic axis of tokens with a tick at each budget, in millions where it is twice the one named before."""
    named: list[int] = []
    for tokens in sorted(budgets):
        if not named or tokens >= 2 * named[-1]:
            named.append(tokens)
    names = [formatting.millions(tokens).removesuffix("M") if tokens in named else "" for tokens in sorted(budgets)]
    axes.set_xscale("log")
    axes.set_xticks(sorted(budgets), names, fontsize=9)
    axes.minorticks_off()


def titled(name: str) -> str:
    """A name with its schemes as the text has them: RoPE for rope."""
    return re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), name)


def hollow(names: Iterable[str]) -> dict[str, str]:
    """A marker for each name, the same for arms with the same alternative (the name, or its part after a comma)."""
    changes = {name: name.partition(", ")[2] or name for name in names}
    markers = dict(zip(dict.fromkeys(changes.values()), itertools.cycle("DsPXh"), strict=False))
    return {name: markers[change] for name, change in changes.items()}


def _runs(axes: Any, results: Sequence[Result], alternatives: Mapping[str, Sequence[Result]]) -> None:
    look = looks([ARM, BASELINE, *(own[0].pos for own in alternatives.values())])
    for pos in (BASELINE, ARM):
        by_budget: dict[int, list[float]] = {}
        for result in sorted(results, key=lambda result: result.tokens):
            if result.pos == pos:
                by_budget.setdefault(result.tokens, []).append(result.val_loss)
        medians = [statistics.median(found) for found in by_budget.values()]
        axes.plot([*by_budget], medians, color=look[pos].colour, linewidth=1.6, label=titled(pos))
        for tokens, found in by_budget.items():
            dot = {"markersize": 5, "alpha": 0.65, "markeredgewidth": 0}
            axes.plot([tokens] * len(found), found, "o", color=look[pos].colour, **dot)
    beside = axes.transData + ScaledTranslation(8 / 72, 0, axes.figure.dpi_scale_trans)
    for name, marker in hollow(alternatives).items():
        own = alternatives[name]
        budgets, ends = [result.tokens for result in own], [result.val_loss for result in own]
        style = {"color": look[own[0].pos].colour, "markersize": 5, "fillstyle": "none", "transform": beside}
        axes.plot(budgets, ends, marker, label=titled(name), **style)


def _bigram(axes: Any, results: Sequence[Result]) -> None:
    loss = statistics.fmean(result.bigram_loss for result in results)
    if math.isnan(loss):
        return
    axes.axhline(loss, color="#8c8c8c", linewidth=0.9, linestyle=(0, (2, 2)))
    at = {"xycoords": ("axes fraction", "data"), "ha": "right", "fontsize": 9, "color": "#606060"}
    label(axes, "bigram model", (1, loss), (0, 3), **at)


def _arrow(axes: Any, point: Point) -> None:
    """From the baseline's budget to RoPE's, at the baseline's median loss; N above its middle."""
    loss, needed = statistics.median(point.losses.values()), point.tokens / point.advantage.value
    axes.annotate("", (needed, loss), (point.tokens, loss), arrowprops={"arrowstyle": "->", "color": "#1c1c1c"})
    middle = math.sqrt(needed * point.tokens)
    label(axes, f"{point.advantage.value:.2f}x", (middle, loss), (0, 3), ha="center", fontsize=9, color="#1c1c1c")


def _enlarge(axes: Any, results: Sequence[Result], arrows: Sequence[Point]) -> None:
    """Limits that some runs fill, and the arrows."""
    ends = [result.val_loss for result in results]
    low, high = min(ends), max(ends)
    axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    tokens = [result.tokens for result in results]
    first = min([*tokens, *(point.tokens / point.advantage.value for point in arrows)])
    axes.set_xlim(first / 1.15, max(tokens) * 1.15)
