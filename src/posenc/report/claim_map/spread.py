"""How much seeds differ, and how many a narrow interval needs."""

import math
from collections.abc import Sequence

from posenc.analysis.claim_map import Point, off_plateau, with_ratio
from posenc.analysis.convergence import half_width
from posenc.analysis.results import Result
from posenc.analysis.spread import losses_by_arm, pooled_sd, seeds_needed
from posenc.report import formatting
from posenc.report.tables import Table, markdown

FEWEST = 5
"""Degrees of freedom: with fewer, the 95 % interval of an SD spans a factor of 4 or more."""


def spread(results: Sequence[Result]) -> list[str]:
    """The SD of the final loss over seeds, pooled over the arms and budgets of each scheme, and over all of them.

    Only of the main model: elsewhere a loss is that of another tokenizer or objective.
    """
    runs = off_plateau(result for result in results if result.in_default_setting)
    rows = []
    for pos in sorted({run.pos for run in runs}):
        groups = losses_by_arm(run for run in runs if run.pos == pos)
        if pooled_sd(groups)[1] >= FEWEST:
            rows.append([pos, *_pooled(groups), *_pooled(groups[:-1])])
    if not rows:
        return []
    every = losses_by_arm(runs)
    rows.append(["every scheme", *_pooled(every), *_pooled(every[:-1])])
    head = ("scheme", "SD, nats", "degrees of freedom", "seeds needed")
    without = ("SD without the arm and budget that vary most", "degrees of freedom", "seeds needed")
    return [
        "SD of the final loss over seeds, pooled over the arms and budgets of a scheme, without runs on the bigram "
        "model's plateau, and the number of seeds for which the 95 % interval of a mean is expected to be ± 0.01 nats. "
        f"Schemes with fewer than {FEWEST} degrees of freedom count in the last row only:",
        markdown(Table((*head, *without), rows)),
    ]


def spread_of_ratio(points: Sequence[Point]) -> list[str]:
    """The SD of log N over seeds, pooled over budgets, and what follows from it, in Markdown."""
    known = with_ratio(points)
    sd, freedom = pooled_sd([[math.log(n) for n in point.by_seed.values()] for point in known])
    if not freedom:
        return []
    needed = " and ".join(f"{seeds_needed(sd, math.log(1 + margin))} for ± {margin:.0%}" for margin in (0.01, 0.05))
    intervals = []
    for point in known:
        factor = math.exp(half_width(sd / math.sqrt(len(point.by_seed)), freedom))
        low, high = point.advantage.value / factor, point.advantage.value * factor
        intervals.append(f"{low:.2f} to {high:.2f} ({formatting.millions(point.tokens)})")
    return [
        "SD of log N over seeds, pooled over the budgets where every seed has an N: "
        f"{sd:.3f} ({freedom} degrees of freedom). "
        f"With it, instead of the SD of each budget, the 95 % intervals of N are {', '.join(intervals)}. "
        f"Seeds for which such an interval is expected to have a given half-width: {needed}."
    ]


def _pooled(groups: Sequence[Sequence[float]]) -> list[str]:
    """Three cells of `spread`; empty without two seeds in a group."""
    sd, freedom = pooled_sd(groups)
    return [f"{sd:.4f}", str(freedom), f"{seeds_needed(sd, 0.01):,}"] if freedom else [""] * 3
