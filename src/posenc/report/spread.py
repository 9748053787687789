"""How much seeds differ, and how many a narrow interval needs."""

import math
from collections.abc import Sequence

from posenc.analysis.claim_map import Point, finite, off_plateau
from posenc.analysis.results import Result
from posenc.analysis.spread import by_seeds, pooled_sd, seeds_needed
from posenc.report.tables import Table, markdown


def spread(results: Sequence[Result]) -> list[str]:
    """The SD of the final loss over seeds, pooled over settings, of each scheme with two budgets or more and of all."""
    rows = []
    for pos in sorted({result.pos for result in results}):
        runs = [result for result in results if result.pos == pos]
        groups = by_seeds(off_plateau(runs))
        if len({run.tokens for run in runs}) > 1 and pooled_sd(groups)[1]:
            rows.append([pos, *_pooled(groups), *_pooled(groups[:-1])])
    if not rows:
        return []
    every = by_seeds(off_plateau(results))
    rows.append(["every scheme", *_pooled(every), *_pooled(every[:-1])])
    head = ("scheme", "SD, nats", "degrees of freedom", "seeds needed")
    without = ("SD without the budget or setting that varies most", "degrees of freedom", "seeds needed")
    return [
        "SD of the final loss over seeds, pooled over the budgets and settings of a scheme, without runs on the bigram "
        "model's plateau, and the number of seeds for which the 95 % interval of a mean is at most ± 0.01 nats:",
        markdown(Table("", (*head, *without), rows)),
    ]


def spread_of_ratio(points: Sequence[Point]) -> list[str]:
    """The SD of log N over seeds, pooled over budgets, in Markdown."""
    sd, freedom = pooled_sd([[math.log(n) for n in point.by_seed.values()] for point in finite(points)])
    if not freedom:
        return []
    needed = " and ".join(f"{seeds_needed(sd, math.log(1 + margin))} for ± {margin:.0%}" for margin in (0.01, 0.05))
    return [
        f"SD of log N over seeds, pooled over the budgets of the fit: {sd:.3f} ({freedom} degrees of freedom). "
        f"Seeds needed for a 95 % interval of N of at most a given width: {needed}."
    ]


def _pooled(groups: Sequence[Sequence[float]]) -> list[str]:
    """Three cells of `spread`; empty without two seeds in a group."""
    sd, freedom = pooled_sd(groups)
    return [f"{sd:.4f}", str(freedom), f"{seeds_needed(sd, 0.01):,}"] if freedom else [""] * 3
