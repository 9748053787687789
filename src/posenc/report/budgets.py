"""The final losses of two arms over their budgets, as a figure."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from posenc.analysis.claim_map import Point
from posenc.analysis.results import Result
from posenc.report.figures import STYLE
from posenc.report.looks import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(results: Iterable[Result], points: Sequence[Point], arm: str, baseline: str) -> "Figure":
    """One dot per run and a line through the means; an arrow for each N(D), along the baseline's loss to the arm.

    Args:
        results: of both arms.
        points: N(D) of the arm over the baseline.
        arm, baseline: their schemes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    results = list(results)
    look = looks([arm, baseline])
    with matplotlib.rc_context(STYLE):
        fig = Figure(figsize=(8, 4.2), layout="constrained")
        axes = fig.subplots()
        _bigram(axes, results)
        for pos in (baseline, arm):
            _losses(axes, [result for result in results if result.pos == pos], pos, look[pos].colour)
        for point in points:
            if 1 < point.advantage.value < math.inf and point.advantage.seeds > 1:
                _arrow(axes, point)
        axes.set_xscale("log")
        budgets = sorted({result.tokens for result in results})
        axes.set_xticks(budgets, [f"{tokens / 1e6:.3g}M" for tokens in budgets])
        axes.minorticks_off()
        axes.legend(frameon=False)
        title = f"Each dot is a run, trained to the end of its schedule; arrows: times fewer tokens for {arm}"
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("training tokens of the run")
        axes.set_ylabel("final validation loss, nats per token")
    return fig


def _bigram(axes: Any, results: Sequence[Result]) -> None:
    loss = statistics.fmean(result.bigram_loss for result in results)
    if math.isnan(loss):
        return
    axes.axhline(loss, color="#8c8c8c", linewidth=0.9, linestyle=(0, (2, 2)))
    axes.annotate(
        "bigram model", (0.5, loss), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
        ha="center", fontsize=8, color="#606060",
    )  # fmt: skip


def _losses(axes: Any, results: Sequence[Result], label: str, colour: str) -> None:
    by_budget: dict[int, list[float]] = {}
    for result in sorted(results, key=lambda result: result.tokens):
        by_budget.setdefault(result.tokens, []).append(result.val_loss)
    for tokens, losses in by_budget.items():
        axes.plot([tokens] * len(losses), losses, "o", color=colour, markersize=5, alpha=0.65, markeredgewidth=0)
    means = [statistics.fmean(losses) for losses in by_budget.values()]
    axes.plot([*by_budget], means, color=colour, linewidth=1.6, label=label)


def _arrow(axes: Any, point: Point) -> None:
    needed = point.tokens / point.advantage.value
    axes.annotate(
        "", (needed, point.loss), (point.tokens, point.loss), arrowprops={"arrowstyle": "->", "color": "#1c1c1c"}
    )
    axes.annotate(
        f"{point.advantage.value:.2f}x", (needed, point.loss), xytext=(8, 4), textcoords="offset points",
        fontsize=8, color="#1c1c1c",
    )  # fmt: skip
