"""The comparison as static figures, for papers and README."""

import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from posenc.analysis.arms import Arm
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT, Band
from posenc.analysis.extrapolation import Extrapolation
from posenc.analysis.runs import SCORES
from posenc.report import formatting
from posenc.report.looks import LINESTYLES, Look, looks
from posenc.report.sentences import MANY
from posenc.storage.atomic import atomic_write
from posenc.storage.metrics import METRICS

STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "posenc",
}
"""matplotlib settings of all figures."""

LOW = 0.1
"""A score of an attention head that no scheme raises above this is not plotted."""

TITLE_WIDTH = 100
"""Characters in a line of a panel's title, which may name many keys."""


@matplotlib.rc_context(STYLE)
def curves(comparison: Comparison) -> Figure:
    """One row per panel: validation loss by step, and speed-up over the baseline by loss."""
    look = looks(comparison.schemes)
    figure, rows = _grid(len(comparison.panels), 2, height=4.2)
    for row, panel in zip(rows, comparison.panels, strict=True):
        _losses(row[0], panel, look)
        if panel.rivals:
            _speed_ups(row[1], panel, look)
        else:
            row[1].set_axis_off()
    legend(figure)
    return figure


@matplotlib.rc_context(STYLE)
def heads(comparison: Comparison) -> Figure:
    """One row per panel: the loss, and the scores of the best heads."""
    look = looks(comparison.schemes)
    shown = dict.fromkeys(name for panel in comparison.panels for name in scores(panel))
    figure, rows = _grid(len(comparison.panels), 1 + len(shown), height=4.0)
    for row, panel in zip(rows, comparison.panels, strict=True):
        _over_steps(row[0], panel, "val_loss", look)
        row[0].set_ylim(*window(panel.arms))
        if panel.ngram is not None:
            _horizontal_lines(row[0], {panel.ngram.loss: panel.ngram.order}, linestyle=LINESTYLES["dot"])
        for axes, name in zip(row[1:], shown, strict=True):
            if name not in scores(panel):
                axes.set_axis_off()
                continue
            _over_steps(axes, panel, name, look)
            axes.set_ylim(0, 1)
    legend(figure)
    return figure


def scores(panel: Panel) -> list[str]:
    """The scores that some scheme's best head raises above LOW; the others would be flat at 0."""
    reached = {name: max(max(arm.bands[name]["step"].middle, default=0) for arm in panel.arms) for name in SCORES}
    return [name for name in SCORES if panel.heads and reached[name] >= LOW]


def _over_steps(axes: Any, panel: Panel, name: str, look: Mapping[str, Look]) -> None:
    for arm in panel.arms:
        _draw(axes, arm.bands[name]["step"], arm.scheme, look[arm.scheme])
    _title(axes, panel, METRICS[name].title, [len(arm.runs) for arm in panel.arms])
    axes.set_xlabel("step")
    axes.set_ylabel(METRICS[name].label)
    axes.set_xlim(0, panel.budget)


def _title(axes: Any, panel: Panel, title: str, seeds: Sequence[int]) -> None:
    """The setting, what is drawn, and over how many seeds; a band only if some line has one."""
    over = f"{formatting.seeds_from(seeds)}{', 95 % band' if max(seeds) >= SEEDS_FOR_A_VERDICT else ''}"
    text = "\n".join([*textwrap.wrap(panel.title, TITLE_WIDTH), f"{title[0].upper()}{title[1:]}, {over}"])
    axes.set_title(text, loc="left", fontsize=10, parse_math=False)


def _horizontal_lines(axes: Any, levels: Mapping[float, str], **line: Any) -> None:
    """Horizontal lines with labels to the right of the plot, moved apart if they would overlap."""
    low, high = axes.get_ylim()
    inches = axes.figure.get_figheight() / axes.get_gridspec().nrows - 0.8  # the rest is the title and the labels
    spacing = (high - low) * 10 / (72 * inches)
    free = math.inf
    for level, name in sorted(levels.items(), reverse=True):
        if low < level < high:
            axes.axhline(level, **{"color": "#9a9a9a", "linewidth": 0.8, "zorder": 1, **line})
            free = min(level, free - spacing)
            label(axes, name, (1, free), (3, 0), xycoords=("axes fraction", "data"), va="center")


@matplotlib.rc_context(STYLE)
def lengths(comparison: Comparison) -> Figure:
    """One row per panel with longer windows: bits per byte by length, loss by position."""
    look = looks(comparison.schemes)
    evaluated = [(panel, panel.extrapolation) for panel in comparison.panels if panel.extrapolation]
    figure, rows = _grid(len(evaluated), 2, height=4.2)
    for row, (panel, found) in zip(rows, evaluated, strict=True):
        for one in found.rows:
            _draw(row[0], one.by_length, one.scheme, look[one.scheme], marker="o", markersize=3.5)
            _draw(row[1], one.by_position, one.scheme, look[one.scheme])
        _label_lengths(row[0], panel, found)
        _label_positions(row[1], panel, found)
    legend(figure)
    return figure


def _label_lengths(axes: Any, panel: Panel, found: Extrapolation) -> None:
    _title(axes, panel, "loss in longer windows", [row.evaluated for row in found.rows])
    axes.set_xlabel(f"window length, times the training length of {found.context:,} tokens")
    axes.set_ylabel(METRICS["bits_per_byte"].label)
    _doublings(axes, found.lengths, "{:g}")


def _label_positions(axes: Any, panel: Panel, found: Extrapolation) -> None:
    _title(axes, panel, "loss by position", [row.evaluated for row in found.rows])
    axes.set_xlabel("position in the window, tokens")
    axes.set_ylabel(METRICS["val_loss"].label)
    _doublings(axes, [4**power for power in range(12)], "{:,}")
    axes.axvline(found.context, color="#5a5a5a", linewidth=1, zorder=1)
    label(axes, "training length", (found.context, 0.02), (-4, 0), xycoords=("data", "axes fraction"), ha="right")


def _doublings(axes: Any, ticks: Iterable[float], form: str) -> None:
    """A logarithmic x axis with the given ticks."""
    low, high = axes.get_xlim()
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ticks), [form.format(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(max(low, 0.9), high)


def _grid(rows: int, columns: int, height: float) -> tuple[Figure, Any]:
    """A grid of axes; rows are lower if there are many."""
    figure = Figure(figsize=(10, rows * (height if rows <= MANY else 0.7 * height)), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save_all(comparison: Comparison, folder: Path) -> list[str]:
    """Write curves.png, curves.svg, heads.png if a score rises, lengths.png if evaluated; returns their names.

    Of the last two, one that is left of an earlier comparison is deleted.
    """
    both = curves(comparison)
    figures = {"curves.png": both, "curves.svg": both}
    if any(scores(panel) for panel in comparison.panels):
        figures["heads.png"] = heads(comparison)
    if any(panel.extrapolation for panel in comparison.panels):
        figures["lengths.png"] = lengths(comparison)
    for name, figure in figures.items():
        save(figure, folder / name)
    for name in {"heads.png", "lengths.png"}.difference(figures):
        (folder / name).unlink(missing_ok=True)
    return list(figures)


def label(axes: Any, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Text beside a point; the offset is in typographic points."""
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **{"fontsize": 8, "color": "#444444", **style})


def save(figure: Figure, file: Path) -> None:
    """Write a figure as .png or .svg, atomically and deterministically."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if file.suffix == ".svg" else {}
    with matplotlib.rc_context(STYLE):  # matplotlib reads the file options here, not when the figure is created
        figure.savefig(buffer, format=file.suffix[1:], dpi=160, metadata=metadata)
    atomic_write(file, buffer.getvalue())


def image(figure: Figure, file: Path, what: str) -> str:
    """Write a figure into the folder of a page; returns the Markdown that shows it there."""
    save(figure, file)
    return f"![{what}]({file.name})"


def legend(figure: Figure, most: int = 6, **style: Any) -> None:
    """One legend below all panels, in as many columns as fit, `most` of them at most."""
    lines = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    below = {"loc": "outside lower center", "frameon": False, "handlelength": 3, **style}
    for columns in range(min(most, len(lines)), 0, -1):
        drawn = figure.legend(lines.values(), lines, ncols=columns, **below)
        if columns == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()


def _losses(axes: Any, panel: Panel, look: Mapping[str, Look]) -> None:
    for arm in panel.arms:
        for run in arm.runs:
            thin = {"linewidth": 0.5, "alpha": 0.35, "color": look[arm.scheme].colour}
            axes.plot(run.curve["step"], run.curve["val_loss"], **thin)
    _over_steps(axes, panel, "val_loss", look)
    axes.set_ylim(*window(panel.arms))
    _horizontal_lines(axes, {threshold.level: formatting.share(threshold.fraction) for threshold in panel.thresholds})
    if panel.rivals:
        grey = f"grey: {panel.baseline}'s loss after fractions of the budget"
        axes.set_xlabel(f"step; thin: single seeds\n{grey}", parse_math=False)


def _speed_ups(axes: Any, panel: Panel, look: Mapping[str, Look]) -> None:
    axes.axhline(1, color=look[panel.baseline].colour, linestyle=look[panel.baseline].linestyle, linewidth=1.4)
    for arm in panel.rivals:
        if arm.speed_ups is not None:
            _draw(axes, arm.speed_ups, arm.scheme, look[arm.scheme])
    axes.invert_xaxis()
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)) if high > 3 * low else MaxNLocator(6))
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("loss, nats per token (decreasing to the right)")
    axes.set_ylabel(METRICS["speed_up_steps"].title)
    seeds = [arm.headline.in_steps.seeds for arm in panel.rivals if arm.headline]
    _title(axes, panel, f"speed-up over {panel.baseline}", seeds)


def _draw(axes: Any, curve: Band, scheme: str, look: Look, **line: Any) -> None:
    axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.18, linewidth=0, zorder=1.5)
    line = {"linestyle": look.linestyle, "linewidth": 1.8, "zorder": 3, **line}
    axes.plot(curve.x, curve.middle, color=look.colour, label=scheme, **line)


def window(arms: Sequence[Arm]) -> tuple[float, float]:
    """The range of losses to show; the steep initial drop would flatten the rest."""
    last = [run.last_loss for arm in arms for run in arm.runs]
    tenth = [float(run.curve["val_loss"][len(run.curve["val_loss"]) // 10]) for arm in arms for run in arm.runs]
    low, high = min(last), max([*tenth, *last])
    return low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-6
