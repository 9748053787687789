"""The figure of the longest runs: each scheme's loss minus RoPE's, within the run."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from posenc.analysis.claim_map import ARM
from posenc.analysis.results import BACKBONE, SEARCH, CurveRow, by_arm
from posenc.report import formatting
from posenc.report.claim_map_losses import titled
from posenc.report.figures import STYLE
from posenc.report.looks import looks

START = 1 / 8
"""The part of the run that is not drawn, since there losses fall too steeply to be compared."""


class Curves(NamedTuple):
    """The validation losses of an arm, by seed and tokens."""

    lr: float
    by_seed: dict[int, dict[int, float]]

    def rank(self) -> tuple[int, float]:
        """More seeds are better, then a lower final loss."""
        ends = [losses[max(losses)] for losses in self.by_seed.values()]
        return len(ends), -sum(ends) / len(ends)


def main_arms(rows: Iterable[CurveRow]) -> dict[str, Curves]:
    """Of each scheme the arm with the most seeds, those of trials included, and of several the lowest one."""
    found: dict[str, Curves] = {}
    for of_arm in by_arm(replace(row, setting=BACKBONE) for row in rows if row.setting in (BACKBONE, SEARCH)):
        curves = Curves(of_arm[0].lr, {})
        for row in of_arm:
            curves.by_seed.setdefault(row.seed, {})[row.at_tokens] = row.val_loss
        found[row.pos] = max(found.get(row.pos, curves), curves, key=Curves.rank)
    return found


@matplotlib.rc_context(STYLE)
def differences(rows: Sequence[CurveRow]) -> Figure | None:
    """A line for each run of another scheme, minus RoPE's run of the same seed; None if there are none.

    Args:
        rows: of one budget on one corpus.
    """
    arms = main_arms(rows)
    if ARM not in arms:
        return None
    rope = arms.pop(ARM)
    paired = {pos: sorted(curves.by_seed.keys() & rope.by_seed) for pos, curves in arms.items()}
    shown = [pos for pos, seeds in paired.items() if seeds]
    if not shown:
        return None
    fig = Figure(figsize=(7, 3.8), layout="constrained")
    axes: Any = fig.subplots()
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    look = looks(shown)
    for place, pos in enumerate(shown):
        name = f"{titled(pos)} at {arms[pos].lr:g}, {formatting.seeds(len(paired[pos]))}"
        again = look[pos].colour in (look[other].colour for other in shown[:place])
        line = {"color": look[pos].colour, "linestyle": (0, (1.5, 1.2)) if again else "-", "linewidth": 1.3}
        for seed in paired[pos]:
            losses, own = arms[pos].by_seed[seed], rope.by_seed[seed]
            drawn = [at for at in sorted(losses.keys() & own) if at >= START * max(losses)]
            axes.plot([at / 1e6 for at in drawn], [losses[at] - own[at] for at in drawn], label=name, **line)
            name = "_"  # the legend has one entry for all seeds
    axes.set_xlabel("million training tokens")
    axes.set_ylabel(f"validation loss minus that\nof {titled(ARM)} at {rope.lr:g}, nats")
    axes.margins(x=0.02)
    fig.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return fig
