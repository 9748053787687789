"""The figure of the final losses from the first budget at which the claim map's baseline ends lower."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from posenc.analysis.claim_map import ROPE, SINUSOID, Point, from_reversal
from posenc.analysis.results import Result
from posenc.report import formatting
from posenc.report.figures import STYLE
from posenc.report.looks import looks, titled


@matplotlib.rc_context(STYLE)
def reversed_order(
    results: Sequence[Result], points: Sequence[Point], alternatives: Mapping[str, Sequence[Result]]
) -> Figure | None:
    """The final loss of each run, a panel for each of these budgets with a row for each arm; None if there are none.

    Args:
        alternatives: runs of other schemes, or with other hyperparameters, by name; they have rows of their own.
    """
    strips = {tokens: _rows(results, alternatives, tokens) for tokens in from_reversal(points)}
    if not strips:
        return None
    numbers = [len(rows) for rows in strips.values()]
    fig = Figure(figsize=(8, 0.23 * sum(numbers) + 0.5 * len(numbers) + 0.4), layout="constrained")
    stacked = fig.subplots(len(strips), 1, squeeze=False, sharex=True, height_ratios=numbers)[:, 0]
    drawn = [run for rows in strips.values() for _, runs in rows for run in runs]
    several = {
        ROPE: len({run.base for run in drawn if run.pos == ROPE}) > 1,
        SINUSOID: len({run.scale for run in drawn if run.pos == SINUSOID}) > 1,
    }
    for axes, (budget, rows) in zip(stacked, strips.items(), strict=True):
        of_arms = [(_named(name, runs[0], several.get(runs[0].pos, False)), runs) for name, runs in rows]
        _strip(axes, of_arms, f"the runs of {formatting.millions(budget)} tokens; bars: means, bold: the arms")
        for tick, (name, _) in zip(axes.get_yticklabels(), rows, strict=True):
            tick.set_fontweight("bold" if name in (ROPE, SINUSOID) else "normal")
    stacked[-1].set_xlabel("final validation loss, nats per token")
    return fig


def _rows(
    results: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], tokens: int
) -> list[tuple[str, list[Result]]]:
    """The runs of one budget by the name of their arm, by rising mean loss."""
    arms = {pos: [run for run in results if run.pos == pos] for pos in (SINUSOID, ROPE)} | dict(alternatives)
    rows = [(name, [run for run in runs if run.tokens == tokens]) for name, runs in arms.items()]
    return sorted((row for row in rows if row[1]), key=lambda row: statistics.fmean(run.val_loss for run in row[1]))


def _named(name: str, run: Result, in_full: bool) -> str:
    """The name of an arm with its learning rate, and perhaps with its base or amplitude."""
    own = {ROPE: formatting.base, SINUSOID: "amplitude {}".format}
    chosen = [own[run.pos](run.base if run.pos == ROPE else run.scale)] if in_full else []
    chosen.append(f"learning rate {run.lr:g}")
    return ", ".join([name, *(one for one in chosen if one not in name.split(", "))])


def _strip(axes: Any, rows: Sequence[tuple[str, Sequence[Result]]], title: str) -> None:
    """A row of dots for each arm, the lowest loss at the top."""
    look = looks(runs[0].pos for _, runs in rows)
    for height, (_, runs) in enumerate(rows):
        ends = [run.val_loss for run in runs]
        colour = look[runs[0].pos].colour
        axes.plot(ends, [height] * len(ends), "o", color=colour, markersize=5, alpha=0.65, markeredgewidth=0)
        axes.plot([statistics.fmean(ends)] * 2, [height - 0.3, height + 0.3], color=colour, linewidth=1.6)
    axes.set_yticks(range(len(rows)), [titled(name) for name, _ in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title, loc="right", fontsize=9)  # which may be longer than the axes, but not than their labels too
