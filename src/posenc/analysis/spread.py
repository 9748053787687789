"""How much the final losses of seeds differ, and how many seeds a narrow interval needs."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from posenc.analysis.convergence import CONFIDENCE, half_width
from posenc.analysis.results import Result, by_arm


def losses_by_arm(results: Iterable[Result]) -> list[list[float]]:
    """The final losses of each arm, by rising variance over its seeds."""
    groups = [[result.val_loss for result in of_arm] for of_arm in by_arm(results)]
    return sorted(groups, key=lambda losses: float(np.var(losses)))


def pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation within groups of losses, and its degrees of freedom; NaN and 0 without two in a group."""
    freedom = sum(len(losses) - 1 for losses in groups)
    squares = sum(float(np.var(losses)) * len(losses) for losses in groups)
    return (math.sqrt(squares / freedom), freedom) if freedom else (math.nan, 0)


def seeds_needed(sd: float, margin: float) -> int:
    """The number of seeds for which the 95 % interval of a mean is at most +- margin, for values with this SD."""
    # The normal quantile is below Student's, so that this is a lower bound, and close to the number where it is large.
    seeds = max(2, math.ceil((stats.norm.ppf(0.5 + CONFIDENCE / 2) * sd / margin) ** 2))
    while half_width(sd / math.sqrt(seeds), seeds - 1) > margin:
        seeds += 1
    return seeds
