"""The claim map: how many times fewer tokens one arm needs to reach the loss of another, by budget.

N(D) = D / D_arm(L(D)), where L(D) is the baseline's validation loss at the end of a run of D tokens, and D_arm(L) the
arm's own budget for that loss, interpolated in log D between the arm's budgets. Each budget is a run with its own
schedule, so neither a plateau nor the annealing of the learning rate favours an arm (docs/protocol.md).
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
"""A baseline that ends less than this many nats below the bigram model is still on its plateau."""


@dataclass(frozen=True)
class Point:
    """N(D) at one budget of the baseline.

    Attributes:
        tokens: D.
        losses: the baseline's final loss, by seed.
        advantage: N(D), geometric mean over the seeds that both arms share; 0 if no budget of the arm reaches that
            loss, infinite if its smallest one does.
        by_seed: N(D) of each seed, 0 and infinite as above.
        bound: what N(D) is above where it is infinite: D over the arm's smallest budget.
        gap: the baseline's loss minus the arm's at the same D, in nats; None if the arm has no run of D tokens.
        plateau: whether the baseline is less than PLATEAU below the bigram model.
    """

    tokens: int
    losses: Mapping[int, float]
    advantage: Estimate
    by_seed: Mapping[int, float]
    bound: float
    gap: Estimate | None
    plateau: bool

    @property
    def loss(self) -> float:
        """The baseline's, mean over seeds."""
        return float(np.mean(list(self.losses.values())))


@dataclass(frozen=True)
class Trend:
    """log N = a + b log D, fitted for each seed.

    Attributes:
        slope: b, mean over seeds with Student's interval. Below 0 the advantage shrinks as the budget grows.
        seeds: number of seeds.
    """

    slope: Estimate
    seeds: int


def tokens_to(budgets: Mapping[int, float], loss: float) -> float:
    """The budget that an arm needs for a loss, interpolated in log D between its own budgets.

    Args:
        budgets: the arm's final validation loss by tokens.
        loss: nats per token.

    Returns:
        Tokens; 0 if its smallest budget is enough, infinite if its largest is not.
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
        points.append(
            Point(
                tokens,
                losses,
                figures_only(_ratio(tokens, list(needed.values()))),
                {seed: tokens / budget if budget else math.inf for seed, budget in needed.items()},
                tokens / max(min(arms[arm][seed]) for seed in losses),
                figures_only(mean(gaps)) if gaps else None,
                float(np.mean(list(losses.values()))) > floors[tokens] - PLATEAU,
            )
        )
    return tuple(points)


def off_plateau(results: Iterable[Result]) -> list[Result]:
    """The results that end at least PLATEAU below the bigram model; on the plateau the loss varies more over seeds."""
    return [result for result in results if result.val_loss <= result.bigram_loss - PLATEAU]


def _by_seed(results: Iterable[Result]) -> dict[int, dict[int, float]]:
    """Losses by seed, then by tokens.

    Raises:
        UserError: if a budget and seed was trained with two sets of hyperparameters.
    """
    losses: dict[int, dict[int, float]] = {}
    for result in results:
        of_seed = losses.setdefault(result.seed, {})
        if result.tokens in of_seed:
            raise UserError(f"{result.pos}, seed {result.seed}, {result.tokens:,} tokens appear twice in the results")
        of_seed[result.tokens] = result.val_loss
    return losses


def _ratio(tokens: int, needed: Sequence[float]) -> Estimate:
    if any(budget == 0 for budget in needed):
        return Estimate(math.inf, None, None, len(needed))
    return speed_up([tokens] * len(needed), needed)


def trend(points: Sequence[Point]) -> Trend | None:
    """How N changes with D, over the points off the plateau; None if no seed has two of them."""
    slopes = []
    for seed in sorted({seed for point in points for seed in point.by_seed}):
        known = [(point.tokens, point.by_seed.get(seed, 0.0)) for point in points if not point.plateau]
        finite = [(math.log(tokens), math.log(n)) for tokens, n in known if 0 < n < math.inf]
        if len(finite) >= 2:
            slopes.append(float(stats.linregress(*np.transpose(finite)).slope))
    return Trend(figures_only(mean(slopes)), len(slopes)) if slopes else None
