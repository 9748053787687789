"""The hyperparameter search as a figure and a table."""

import math
from collections.abc import Mapping, Sequence, Set

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from posenc.analysis.search import Trial, expected_best
from posenc.report import formatting
from posenc.report.figures import STYLE, label, legend
from posenc.report.looks import looks, titled
from posenc.report.tables import Table, markdown

Search = Mapping[str, Sequence[Trial]]
"""The trials of each arm, best first."""

Choice = tuple[str, float, str, str]
"""An arm and its lr, scale and base."""


@matplotlib.rc_context(STYLE)
def figure(search: Search, tokens: int, chosen: Set[Choice]) -> Figure:
    """The expected best of k trials by k, one line per arm; every trial as a bar at k = 1, a chosen one in a ring.

    Arms with few trials, which have no best of many, are in the table only. Trials above the upper quartile of each arm
    are cut, and counted at the top.

    Args:
        search: the trials.
        tokens: of each run.
        chosen: the hyperparameters that other runs have.
    """
    longest = max(map(len, search.values()))
    search = {pos: trials for pos, trials in search.items() if len(trials) >= longest / 2}
    look = looks(search)
    fig = Figure(figsize=(8, 4), layout="constrained")
    axes = fig.subplots()
    best = {pos: expected_best([trial.loss for trial in trials]) for pos, trials in search.items()}
    low, top = _limits(search, best)
    margin = 0.06 * (top - low) + 0.001
    for pos, trials in search.items():
        color, losses = look[pos].colour, [trial.loss for trial in trials]
        line = {"color": color, "linestyle": look[pos].linestyle, "marker": "o", "markersize": 4}
        axes.plot(range(1, len(trials) + 1), best[pos], label=titled(pos), **line)
        axes.plot([1] * len(trials), losses, "_", color=color, markersize=12)
        used = [trial.loss for trial in trials if (pos, trial.lr, trial.scale, trial.base) in chosen]
        axes.plot([1] * len(used), used, "o", color=color, markersize=9, fillstyle="none")
    cut = sum(trial.loss > top + margin for trials in search.values() for trial in trials)
    if cut:
        axes.plot(1, top + margin, "^", color="#1c1c1c", markersize=6, clip_on=False)
        label(axes, f"{cut} above", (1, top + margin), (9, -3), va="top", fontsize=9)
    axes.set_title(
        f"Expected best of k of an arm's trials with {formatting.millions(tokens)} tokens, drawn at random\n"
        "bars at k = 1: single trials; ring: the trial whose hyperparameters the claim map uses at this budget",
        loc="left",
        fontsize=10,
    )
    axes.set_xticks(range(1, longest + 1, math.ceil(longest / 10)))
    axes.set_xlim(1 - 0.03 * longest, longest + 0.03 * longest)
    axes.set_ylim(low - margin, top + margin)
    axes.set_xlabel("k, number of trials")
    axes.set_ylabel("validation loss, nats per token")
    legend(fig, 4, fontsize=9)
    return fig


def _limits(search: Search, best: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """The lowest expected best, and the highest of the means and upper quartiles of the arms' trials."""
    quartiles = [float(np.percentile([trial.loss for trial in trials], 75)) for trials in search.values()]
    return min(losses[-1] for losses in best.values()), max(quartiles + [losses[0] for losses in best.values()])


def table(search: Search) -> str:
    """One row per arm, in Markdown."""
    rows = []
    for pos, trials in search.items():
        losses = [f"{trial.loss:.4f}, {formatting.seeds(trial.seeds)}" for trial in trials]
        rows.append((pos, str(len(trials)), formatting.hyperparameters(trials[0]), *[*losses, ""][:2]))
    return markdown(Table(("arm", "trials", "best", "loss", "next best"), rows))
