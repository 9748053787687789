"""The comparison as still figures, for papers and README."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.analysis.attention_heads import measured, orderless
from posenc.analysis.bands import Band, Look, band, looks, speed_up_band
from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.extrapolation import beyond, bits_band, evaluated, position_band
from posenc.report import formatting
from posenc.storage.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (6, 2)), "dot": (0, (1.2, 1.6)), "dashdot": (0, (6, 2, 1.2, 2))}
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
"""Settings of matplotlib for every figure of the project."""


def curves(panels: Sequence[Panel]) -> "Figure":
    """A row a panel: validation loss against steps, and speed-up over the baseline against loss."""
    import matplotlib
    from matplotlib.figure import Figure

    look = looks([arm.scheme for panel in panels for arm in panel.arms])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, _height(4.2, len(panels))), layout="constrained")
        for row, panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
            _losses(row[0], panel, look)
            _legend_once(figure, row[0])
            if panel.rivals:
                _speed_ups(row[1], panel, look)
            else:
                row[1].set_axis_off()
    return figure


def heads(panels: Sequence[Panel]) -> "Figure":
    """A row a panel: the loss, beside it where the best heads look: at the token before, at what to copy."""
    import matplotlib
    from matplotlib.figure import Figure

    look = looks([arm.scheme for panel in panels for arm in panel.arms])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, _height(4.0, len(panels))), layout="constrained")
        for row, panel in zip(figure.subplots(len(panels), 3, squeeze=False), panels, strict=True):
            titles = {
                "val_loss": "Validation loss, nats per token",
                "previous_token": "On the token before, best head",
                "induction": "On what followed before, best head",
            }
            for axes, (measure, title) in zip(row, titles.items(), strict=True):
                for arm in panel.arms:
                    _draw(axes, band(arm, measure), arm.scheme, look[arm.scheme])
                if measure == "val_loss":
                    axes.set_ylim(*window(panel.arms))
                axes.set_title(title, loc="left", fontsize=10)
                axes.set_xlabel("step")
                axes.set_xlim(0, panel.budget)
                if measure != "val_loss":
                    axes.set_ylim(0, max(0.05, axes.get_ylim()[1]))
            _legend_once(figure, row[0])
            floor, (low, high) = orderless(panel), window(panel.arms)
            if floor is not None and low < floor.loss < high:
                row[0].axhline(floor.loss, color="#1c1c1c", linewidth=0.9, linestyle=_DASHES["dot"], zorder=1)
                row[0].annotate(
                    floor.table, (1, floor.loss), xycoords=("axes fraction", "data"),
                    ha="right", va="bottom", fontsize=8, color="#444444",
                )  # fmt: skip
            if panel.title:
                row[0].set_ylabel(panel.title)
    return figure


def lengths(panels: Sequence[Panel]) -> "Figure":
    """A row a panel that was evaluated in longer windows: bits per byte against length, loss against position."""
    import matplotlib
    from matplotlib.figure import Figure

    look = looks([arm.scheme for panel in panels for arm in panel.arms])
    rows = [(panel, told) for panel in panels if (told := beyond(panel))]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, _height(4.2, len(rows))), layout="constrained")
        for axes, (panel, told) in zip(figure.subplots(len(rows), 2, squeeze=False), rows, strict=True):
            for arm in filter(evaluated, panel.arms):
                _draw(axes[0], bits_band(arm), arm.scheme, look[arm.scheme], marker="o", markersize=3.5)
                _draw(axes[1], position_band(arm), arm.scheme, look[arm.scheme])
            axes[0].set_title(f"{panel.title + ': ' if panel.title else ''}mean, 95 % band", loc="left", fontsize=10)
            axes[0].set_xlabel(f"length of the windows, times the {told.context:,} tokens trained at")
            axes[0].set_ylabel("bits per byte")
            _doublings(axes[0], told.lengths, "{:g}")
            axes[1].set_title("Along the window", loc="left", fontsize=10)
            axes[1].set_xlabel("position in the window, tokens")
            axes[1].set_ylabel("loss, nats per token")
            _doublings(axes[1], [4**power for power in range(12)], "{:,}")
            axes[1].axvline(told.context, color="#5a5a5a", linewidth=1, zorder=1)
            axes[1].annotate(
                "trained up to here", (told.context, 0.02), xycoords=("data", "axes fraction"), xytext=(-4, 0),
                textcoords="offset points", ha="right", fontsize=8, color="#444444",
            )  # fmt: skip
            _legend_once(figure, axes[0])
    return figure


def has_lengths(panels: Sequence[Panel]) -> bool:
    """Whether a run was evaluated in longer windows."""
    return any(evaluated(arm) for panel in panels for arm in panel.arms)


def _doublings(axes: Any, places: Iterable[float], form: str) -> None:
    """A logarithmic axis across, with marks at some of these places."""
    low, high = axes.get_xlim()
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(places), [form.format(place) for place in places])
    axes.minorticks_off()
    axes.set_xlim(max(low, 0.9), high)


def _height(row: float, rows: int) -> float:
    """Inches of so many rows: lower ones where there are many, so that more of them are seen at once."""
    return rows * (row if rows <= formatting.MANY else 0.7 * row)


def has_heads(panels: Sequence[Panel]) -> bool:
    """Whether the attention heads of every run were looked at."""
    return all(measured(panel.arms) for panel in panels)


def save_all(panels: Sequence[Panel], folder: Path) -> None:
    """Write curves.png, curves.svg, heads.png where heads were looked at, lengths.png where lengths were evaluated."""
    drawn = curves(panels)
    save(drawn, folder / "curves.png")
    save(drawn, folder / "curves.svg")
    if has_heads(panels):
        save(heads(panels), folder / "heads.png")
    if has_lengths(panels):
        save(lengths(panels), folder / "lengths.png")


def save(figure: "Figure", file: Path) -> None:
    """Write a figure as .png or .svg, complete or not at all, the same bytes for the same data."""
    import matplotlib

    drawn = io.BytesIO()
    metadata = {"Date": None} if file.suffix == ".svg" else {}
    with matplotlib.rc_context(STYLE):  # what concerns the file is read here, not where the figure was drawn
        figure.savefig(drawn, format=file.suffix[1:], dpi=160, metadata=metadata)
    atomic_write(file, drawn.getvalue())


def _legend_once(figure: "Figure", axes: Any) -> None:
    """One legend for all panels, under them, where it hides no curve."""
    if axes.get_subplotspec().is_first_row():
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, handlelength=3)


def _losses(axes: Any, panel: Panel, look: dict[str, Look]) -> None:
    if panel.rivals:
        for mark in panel.rivals[0].marks:
            axes.axhline(mark.level, color="#9a9a9a", linewidth=0.8, zorder=1)
    for arm in panel.arms:
        for run in arm.runs:
            axes.plot(
                run.curve["step"], run.curve["val_loss"], color=look[arm.scheme].colour, linewidth=0.5, alpha=0.35
            )
        _draw(axes, band(arm, "val_loss"), arm.scheme, look[arm.scheme])
    axes.set_ylim(*window(panel.arms))
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss, nats per token")
    seeds = sorted({len(arm.runs) for arm in panel.arms})
    over = formatting.seeds(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    axes.set_title(f"{panel.title + ': ' if panel.title else ''}mean over {over}, 95 % band", loc="left", fontsize=10)
    if panel.rivals:
        axes.annotate(
            f"grey lines: {panel.baseline}'s loss after 25, 50, 75, 100 %",
            (0.02, 0.02), xycoords="axes fraction", color="#666666", fontsize=8,
        )  # fmt: skip


def _speed_ups(axes: Any, panel: Panel, look: dict[str, Look]) -> None:
    axes.axhline(1, color=look[panel.baseline].colour, linestyle=_DASHES[look[panel.baseline].dash], linewidth=1.4)
    for arm in panel.rivals:
        _draw(axes, speed_up_band(arm, panel), arm.scheme, look[arm.scheme])
    axes.invert_xaxis()
    axes.set_yscale("log")
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("loss to be reached, falling to the right")
    axes.set_ylabel(f"times fewer steps than {panel.baseline}")
    axes.set_title(f"Speed-up over {panel.baseline}, 95 % band", loc="left", fontsize=10)


def _draw(axes: Any, curve: Band, scheme: str, look: Look, **line: Any) -> None:
    axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.18, linewidth=0)
    line = {"linestyle": _DASHES[look.dash], "linewidth": 1.8, **line}
    axes.plot(curve.x, curve.middle, color=look.colour, label=scheme, **line)


def window(arms: Sequence[Arm]) -> tuple[float, float]:
    """Losses worth showing: the fall from the first measurements would flatten everything after it."""
    last = [float(run.curve["val_loss"][-1]) for arm in arms for run in arm.runs]
    tenth = [float(run.curve["val_loss"][len(run.curve["val_loss"]) // 10]) for arm in arms for run in arm.runs]
    low, high = min(last), max([*tenth, *last])
    return low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-6
