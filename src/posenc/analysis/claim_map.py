"""The claim map: how many times fewer tokens one arm needs for the loss of another, budget by budget.

N(D) = D / D_arm(L(D)), where L(D) is the baseline's validation loss at the end of a run of D tokens, and D_arm(L) the
arm's own budget for that loss, interpolated in log D between the arm's budgets. Each budget is a run with a schedule of
its own, so neither a plateau nor the annealing of the learning rate favours an arm (docs/protocol.md).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from posenc.analysis.convergence import Estimate, figures_only, mean, reached, speed_up
from posenc.analysis.results import Result
from posenc.errors import UserError

PLATEAU = 0.1
"""Nats under the bigram model that a baseline must be for its end to be more than the end of a plateau."""


@dataclass(frozen=True)
class Point:
    """N(D) at one budget of the baseline.

    Attributes:
        tokens: D.
        loss: the baseline's at its end, mean over seeds.
        advantage: N(D), geometric mean over the seeds that both arms share; 0 where the arm never has that loss within
            its budgets, infinite where its smallest budget has it already.
        by_seed: N(D) of each seed.
        gap: the baseline's loss less the arm's at the same D, in nats; None where the arm has no run of D tokens.
        plateau: whether the baseline stands less than PLATEAU under the bigram model.
    """

    tokens: int
    loss: float
    advantage: Estimate
    by_seed: Mapping[int, float]
    gap: Estimate | None
    plateau: bool


@dataclass(frozen=True)
class Trend:
    """log N = a + b log D, fitted in each seed; b is their mean with Student's interval over the seeds.

    Attributes:
        slope: b. Below 0 the advantage shrinks as the budget grows.
        seeds: how many.
    """

    slope: Estimate
    seeds: int


def tokens_to(budgets: Mapping[int, float], loss: float) -> float:
    """The budget at which an arm ends with a loss, interpolated in log D between its own budgets.

    Args:
        budgets: its validation loss at the end of each, by tokens.
        loss: nats per token.

    Returns:
        Tokens; 0 where its smallest budget is enough, infinite where its largest is not.
    """
    tokens = sorted(budgets)
    losses = [budgets[size] for size in tokens]
    if losses[0] <= loss:
        return float(tokens[0]) if losses[0] == loss else 0.0
    return math.exp(reached(np.log(tokens), losses, loss))


def advantage(results: Iterable[Result], arm: str, baseline: str) -> tuple[Point, ...]:
    """N(D) of an arm over a baseline, for results of one corpus and setting, by rising D."""
    arms = {name: _by_seed(result for result in results if result.pos == name) for name in (arm, baseline)}
    floors = {result.tokens: result.bigram_loss for result in results if result.pos == baseline}
    seeds = sorted(arms[arm].keys() & arms[baseline].keys())
    points = []
    for tokens in sorted({tokens for seed in seeds for tokens in arms[baseline][seed]}):
        losses = {seed: arms[baseline][seed][tokens] for seed in seeds if tokens in arms[baseline][seed]}
        needed = {seed: tokens_to(arms[arm][seed], loss) for seed, loss in losses.items()}
        gaps = [loss - arms[arm][seed][tokens] for seed, loss in losses.items() if tokens in arms[arm][seed]]
        level = float(np.mean(list(losses.values())))
        points.append(
            Point(
                tokens,
                level,
                figures_only(_ratio(tokens, list(needed.values()))),
                {seed: tokens / budget if budget else math.inf for seed, budget in needed.items()},
                figures_only(mean(gaps)) if gaps else None,
                level > floors[tokens] - PLATEAU,
            )
        )
    return tuple(points)


def off_plateau(results: Iterable[Result]) -> list[Result]:
    """Those that end PLATEAU under the bigram model; over seeds, a plateau's end is left early or late."""
    return [result for result in results if result.val_loss <= result.bigram_loss - PLATEAU]


def _by_seed(results: Iterable[Result]) -> dict[int, dict[int, float]]:
    """Losses by seed, then by tokens.

    Raises:
        UserError: if one budget of a seed was trained with two sets of hyperparameters: which is the arm's?
    """
    losses: dict[int, dict[int, float]] = {}
    for result in results:
        of_seed = losses.setdefault(result.seed, {})
        if result.tokens in of_seed:
            raise UserError(f"{result.pos}, seed {result.seed}, {result.tokens:,} tokens stand twice in the results")
        of_seed[result.tokens] = result.val_loss
    return losses


def _ratio(tokens: int, needed: Sequence[float]) -> Estimate:
    if any(budget == 0 for budget in needed):
        return Estimate(math.inf, None, None, len(needed))
    return speed_up([tokens] * len(needed), needed)


def trend(points: Sequence[Point]) -> Trend | None:
    """How N changes with D, over the points off the plateau; None with fewer than two of them in every seed."""
    slopes = []
    for seed in sorted({seed for point in points for seed in point.by_seed}):
        known = [(point.tokens, point.by_seed.get(seed, 0.0)) for point in points if not point.plateau]
        finite = [(math.log(tokens), math.log(n)) for tokens, n in known if 0 < n < math.inf]
        if len(finite) >= 2:
            slopes.append(float(stats.linregress(*np.transpose(finite)).slope))
    return Trend(figures_only(mean(slopes)), len(slopes)) if slopes else None
