"""Ours beside the paper's figure, where the runs repeat it: the ratio at the same shares of the baseline's budget."""

from collections.abc import Mapping
from dataclasses import dataclass

from posenc.analysis.comparison import Panel, marks_at
from posenc.analysis.convergence import Estimate
from posenc.analysis.published import ROFORMER, Curves
from posenc.report import formatting


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
            ours = [formatting.times(estimate) for estimate in row.ours.values()]
            cells = [formatting.share(row.fraction), f"{row.level:.3f}", f"{row.paper:g}x", *ours]
            lines.append(f"| {' | '.join(cells)} |")
        return lines


def reproduction(panel: Panel) -> Reproduction | None:
    """The panel beside the figure that its runs repeat; None if they repeat none, or there is nothing to compare.

    A share of the budget that lies before the baseline's first validation is left out: nothing is known there.
    """
    curves = next((curves for curves in ROFORMER if _repeats(panel, curves)), None)
    if curves is None or panel.provisional:
        return None
    (baseline,) = (arm for arm in panel.arms if arm.scheme == panel.baseline)
    first = max(float(run.curve["step"][0]) for run in baseline.runs)
    points = {point.other / curves.budget: point for point in curves.points}
    known = [fraction for fraction in points if fraction * panel.budget >= first]
    marks = {arm.scheme: marks_at(arm, panel, known) for arm in panel.rivals}
    rows = [
        Row(
            fraction,
            marks[curves.scheme][place].level,
            points[fraction].ratio,
            {scheme: every[place].in_steps for scheme, every in marks.items()},
        )
        for place, fraction in enumerate(known)
    ]
    return Reproduction(curves, panel.baseline, tuple(rows))


def _repeats(panel: Panel, curves: Curves) -> bool:
    """Whether the runs chose what the figure's did, and the same two are compared."""
    runs = [run for arm in panel.arms for run in arm.runs]
    chosen = all(run.setting.get(group) == choice for run in runs for group, choice in curves.choices.items())
    compared = panel.baseline in curves.others and curves.scheme in [arm.scheme for arm in panel.rivals]
    return chosen and compared
