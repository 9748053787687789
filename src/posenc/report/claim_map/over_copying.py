"""The figure of how the longest runs end, compared with the baseline, over what they copy from their context."""

import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import matplotlib
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from posenc.analysis.claim_map import ROPE, SINUSOID
from posenc.analysis.results import CopyingRow, Result
from posenc.report import formatting
from posenc.report.figures import STYLE
from posenc.report.looks import looks, titled

MARKERS = "o^sDvPX"
"""Of the budgets, again from the first if there are more."""


@matplotlib.rc_context(STYLE)
def over_copying(results: Sequence[Result], rows: Sequence[CopyingRow], budgets: Sequence[int]) -> Figure | None:
    """A dot for each run: its final loss minus the baseline's, over what a second occurrence lowers its loss by.

    The baseline's is the lowest of its runs with the same seed and budget. None without a run.

    Args:
        results: those of the backbone and of searches are drawn.
        rows: what they copy; a run without a row is left out.
        budgets: in tokens; the others are left out.
    """
    comparable = [run for run in results if run.in_default_setting and run.tokens in budgets]
    gains = {row.key: row.first - row.second for row in rows}
    lowest = _lowest([run for run in comparable if run.pos == SINUSOID])
    drawn = [run for run in comparable if run.pos != SINUSOID and run.key in gains and (run.tokens, run.seed) in lowest]
    if not drawn:
        return None
    fig = Figure(figsize=(8, 4.2), layout="constrained")
    axes = fig.subplots()
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    markers = dict(zip(sorted({run.tokens for run in drawn}), itertools.cycle(MARKERS), strict=False))
    styles = _styles(drawn)
    for run in drawn:
        at = gains[run.key], run.val_loss - lowest[run.tokens, run.seed]
        axes.plot(*at, markers[run.tokens], markersize=5.5, **styles[_named(run)])
    for name, style in styles.items():
        axes.plot([], [], "o", label=titled(name), **style)
    for tokens, marker in markers.items():
        axes.plot([], [], marker, color="#767676", label=f"{formatting.millions(tokens)} tokens")
    axes.set_xlabel("loss at the first minus at the second occurrence, nats per token")
    axes.set_ylabel(f"final loss minus the {titled(SINUSOID)}'s, nats per token")
    fig.legend(loc="outside right upper", fontsize=9, frameon=False)
    return fig


def _lowest(runs: Sequence[Result]) -> Mapping[tuple[int, int], float]:
    """The lowest final loss by tokens and seed."""
    lowest_last = sorted(runs, key=attrgetter("val_loss"), reverse=True)
    return {(run.tokens, run.seed): run.val_loss for run in lowest_last}


def _named(run: Result) -> str:
    """The scheme, and of the arm its base."""
    return f"{run.pos}, {formatting.base(run.base)}" if run.pos == ROPE else run.pos


def _styles(runs: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """By name: the arm is darker with a larger base; another scheme has its colour, hollow if one before it has it."""
    of_arm = sorted({(float(run.base), _named(run)) for run in runs if run.pos == ROPE})
    shades = matplotlib.colormaps["Reds"].resampled(len(of_arm) + 2)
    styles: dict[str, dict[str, Any]] = {
        name: {"color": to_hex(shades(index + 2))} for index, (_, name) in enumerate(of_arm)
    }
    for pos, look in looks({run.pos for run in runs} - {ROPE}).items():
        again = look.colour in {style["color"] for style in styles.values()}
        styles[pos] = {"color": look.colour, "fillstyle": "none" if again else "full"}
    return styles
