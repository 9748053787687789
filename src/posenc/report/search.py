"""The search for hyperparameters, as a figure and as a table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posenc.analysis.search import Trial, expected_best
from posenc.report.figures import STYLE
from posenc.report.looks import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Search = Mapping[str, Sequence[Trial]]
"""The trials of each arm, best first."""


def figure(search: Search) -> "Figure":
    """The expected best of k trials against k, a line for each arm; every trial as a tick at the left."""
    import matplotlib
    from matplotlib.figure import Figure

    look = looks(list(search))
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(8, 3.6), layout="constrained")
        axes = drawn.subplots()
        for pos, trials in search.items():
            best = expected_best([trial.loss for trial in trials])
            axes.plot(range(1, len(best) + 1), best, color=look[pos].colour, marker="o", markersize=4)
            axes.plot([0.5] * len(trials), [trial.loss for trial in trials], "_", color=look[pos].colour, markersize=9)
            axes.annotate(
                pos, (len(best), best[-1]), xytext=(8, 0), textcoords="offset points", va="center",
                color=look[pos].colour,
            )  # fmt: skip
        axes.set_title("Best of k trials of an arm, the mean over all ways to draw k", loc="left", fontsize=10)
        axes.set_xlabel("k, trials of hyperparameters (each trial by itself: the bars at the left)")
        axes.set_ylabel("validation loss, nats per token")
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        axes.set_xlim(0, 1.14 * max(map(len, search.values())))
    return drawn


def table(search: Search) -> str:
    """A row an arm, in Markdown."""
    lines = ["| arm | trials | best | loss | next best |", "|---|---|---|---|---|"]
    for pos, trials in search.items():
        own = {"lr": trials[0].lr, "scale": trials[0].scale, "base": trials[0].base}
        best = ", ".join(f"{name} {value}" for name, value in own.items() if value)
        second = f"{trials[1].loss:.4f}" if len(trials) > 1 else ""
        lines.append(f"| {pos} | {len(trials)} | {best} | {trials[0].loss:.4f} | {second} |")
    return "\n".join(lines)
