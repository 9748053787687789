"""The figure of how the arms compare in contexts that are novel in the window and in those that are repeated."""

import statistics
from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc.analysis.claim_map import ROPE, SINUSOID
from posenc.analysis.results import CopyingRow, Result
from posenc.report import formatting
from posenc.report.figures import STYLE
from posenc.report.looks import titled

Pair = tuple[CopyingRow, CopyingRow]
"""RoPE's and the baseline's, of one budget and seed."""


@matplotlib.rc_context(STYLE)
def by_context(backbone: Sequence[Result], rows: Iterable[CopyingRow]) -> Figure | None:
    """A dot for each budget and seed: RoPE's loss minus the baseline's, by context; lines: means over seeds.

    None if fewer than two budgets have both arms.

    Args:
        rows: what runs copy; a run without a row is left out.
    """
    pairs = _pairs(backbone, rows)
    if len(pairs) < 2:
        return None
    fig = Figure(figsize=(8, 3.3), layout="constrained")
    novel, repeated = fig.subplots(1, 2, sharey=True)
    share = statistics.fmean(ours.share for of_budget in pairs.values() for ours, _ in of_budget)
    _panel(novel, {tokens: [ours.new - theirs.new for ours, theirs in of] for tokens, of in pairs.items()})
    _panel(repeated, {tokens: [ours.seen - theirs.seen for ours, theirs in of] for tokens, of in pairs.items()})
    novel.set_title(f"novel contexts ({1 - share:.0%} of the targets)", loc="left", fontsize=10)
    repeated.set_title(f"repeated contexts ({share:.0%})", loc="left", fontsize=10)
    novel.set_ylabel(f"{titled(ROPE)}'s loss minus\nthe {titled(SINUSOID)}'s, nats per token")
    fig.supxlabel("training tokens of the run", fontsize="medium")
    return fig


def _pairs(backbone: Sequence[Result], rows: Iterable[CopyingRow]) -> dict[int, list[Pair]]:
    """The pairs of each budget that has any, by rising budget."""
    measured = {row.key: row for row in rows}
    arms = {(run.pos, run.tokens, run.seed): measured[run.key] for run in backbone if run.key in measured}
    pairs: dict[int, list[Pair]] = {}
    for _, tokens, seed in sorted(key for key in arms if key[0] == ROPE):
        if theirs := arms.get((SINUSOID, tokens, seed)):
            pairs.setdefault(tokens, []).append((arms[ROPE, tokens, seed], theirs))
    return pairs


def _panel(axes: Axes, gaps: dict[int, list[float]]) -> None:
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    axes.plot(list(gaps), [statistics.fmean(of_budget) for of_budget in gaps.values()], color="#0072b2", linewidth=1.5)
    for tokens, of_budget in gaps.items():
        axes.plot([tokens] * len(of_budget), of_budget, "o", color="#0072b2", alpha=0.7, markersize=5)
    axes.set_xscale("log")
    axes.set_xticks(list(gaps), [formatting.millions(tokens) for tokens in gaps], fontsize=8.5)
    axes.margins(x=0.08)
    axes.minorticks_off()
