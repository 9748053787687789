"""The hyperparameter search as a figure and a table."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posenc.analysis.search import Trial, expected_best
from posenc.report import formatting
from posenc.report.figures import STYLE, label
from posenc.report.looks import looks
from posenc.report.tables import Table, markdown

Search = Mapping[str, Sequence[Trial]]
"""The trials of each arm, best first."""


@matplotlib.rc_context(STYLE)
def figure(search: Search) -> Figure:
    """The expected best of k trials by k, one line per arm; every trial as a tick on the left."""
    look = looks(list(search))
    fig = Figure(figsize=(8, 3.6), layout="constrained")
    axes = fig.subplots()
    for pos, trials in search.items():
        best = expected_best([trial.loss for trial in trials])
        axes.plot(range(1, len(best) + 1), best, color=look[pos].colour, marker="o", markersize=4)
        axes.plot([0.5] * len(trials), [trial.loss for trial in trials], "_", color=look[pos].colour, markersize=9)
        label(axes, pos, (len(best), best[-1]), (8, 0), va="center", color=look[pos].colour, fontsize=10)
    axes.set_title("Expected best of k of an arm's trials, drawn at random", loc="left", fontsize=10)
    axes.set_xlabel("k, number of trials (bars on the left: single trials)")
    axes.set_ylabel("validation loss, nats per token")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, 1.14 * max(map(len, search.values())))
    return fig


def table(search: Search) -> str:
    """One row per arm, in Markdown."""
    rows = []
    for pos, trials in search.items():
        own = {"lr": trials[0].lr, "scale": trials[0].scale, "base": trials[0].base}
        best = ", ".join(f"{name} {value}" for name, value in own.items() if value)
        losses = [f"{trial.loss:.4f}, {formatting.seeds(trial.seeds)}" for trial in trials]
        rows.append((pos, str(len(trials)), best, *[*losses, ""][:2]))
    return markdown(Table("", ("arm", "trials", "best", "loss", "next best"), rows))
