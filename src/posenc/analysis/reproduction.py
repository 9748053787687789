"""Ours beside the paper's figure, where the runs repeat it: the ratio at the same shares of the baseline's budget."""

from collections.abc import Mapping
from dataclasses import dataclass

from posenc.analysis import words
from posenc.analysis.comparison import Panel, marks_at
from posenc.analysis.convergence import Estimate
from posenc.analysis.published import ROFORMER, Curves


@dataclass(frozen=True)
class Row:
    """One loss: that of the baseline after a share of its budget.

    Attributes:
        fraction: the share.
        level: the baseline's loss there, mean over seeds.
        paper: how many times fewer steps rotary needs to the other arm's loss at that share, in the paper.
        ours: how many times fewer steps each scheme needs here.
    """

    fraction: float
    level: float
    paper: float
    ours: Mapping[str, Estimate]


@dataclass(frozen=True)
class Reproduction:
    """A panel beside the figure it repeats.

    Attributes:
        curves: the paper's.
        baseline: the scheme ours are held against.
        rows: one a point of the figure.
    """

    curves: Curves
    baseline: str
    rows: tuple[Row, ...]

    @property
    def schemes(self) -> list[str]:
        return list(self.rows[0].ours)

    @property
    def caption(self) -> str:
        """What the rows hold, in a sentence."""
        return (
            f"Times fewer steps than {self.baseline}, to {self.baseline}'s loss after a share of its budget, beside "
            f"{self.curves.source}: rotary against its other arm after the same share"
        )

    def markdown(self) -> list[str]:
        """The caption and a table."""
        head = ["after", f"{self.baseline}'s loss", "the paper", *(f"here: {scheme}" for scheme in self.schemes)]
        lines = [f"{self.caption}:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for row in self.rows:
            ours = [words.times(estimate) for estimate in row.ours.values()]
            cells = [words.share(row.fraction), f"{row.level:.3f}", f"{row.paper:.2f}x", *ours]
            lines.append(f"| {' | '.join(cells)} |")
        return lines


def reproduction(panel: Panel) -> Reproduction | None:
    """The panel beside the figure that its runs repeat; None if they repeat none, or there is nothing to compare."""
    if not panel.rivals or panel.provisional:
        return None
    runs = [run for arm in panel.arms for run in arm.runs]
    for curves in ROFORMER:
        if all(run.setting.get(group) == choice for run in runs for group, choice in curves.choices.items()):
            marks = {arm.scheme: marks_at(arm, panel, curves.fractions()) for arm in panel.rivals}
            rows = []
            for place, point in enumerate(curves.points):
                here = {scheme: every[place] for scheme, every in marks.items()}
                first = next(iter(here.values()))
                rows.append(
                    Row(first.fraction, first.level, point.ratio, {s: mark.in_steps for s, mark in here.items()})
                )
            return Reproduction(curves, panel.baseline, tuple(rows))
    return None
