"""The claim map: how many times fewer tokens one arm needs to reach the loss of another, by budget.

N(D) = D / D_arm(L(D)), where L(D) is the baseline's validation loss at the end of a run of D tokens, and D_arm(L) the
arm's own budget for that loss, interpolated in log D between the arm's budgets. Each budget is a run with its own
schedule, so neither a plateau nor the annealing of the learning rate favours an arm (docs/protocol.md).
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.convergence import Estimate, mean, reached, speed_up
from posenc.analysis.results import BACKBONE, Result
from posenc.analysis.study import Study
from posenc.errors import UserError

ARM, BASELINE, OTHERS = "rope", "sinusoidal", ("learned", "t5", "alibi", "none")

PLATEAU = 0.1
"""A baseline that ends less than this many nats below the bigram model is still on its plateau."""

TREND_BUDGETS = 3
"""A line through two budgets fits whatever they are."""


@dataclass(frozen=True)
class Point:
    """N(D) at one budget of the baseline.

    Attributes:
        tokens: D.
        losses: the baseline's final loss, by seed.
        advantage: N(D), geometric mean over the seeds that both arms share; 0 if no budget of the arm reaches that
            loss, infinite if its smallest one does.
        by_seed: N(D) of each seed, 0 and infinite as above.
        above, below: bounds of N(D) where it is infinite or 0: D over the arm's smallest budget, and over its largest.
        own: the arm's final loss at the same D, by seed, as far as it has been trained.
        plateau: whether the baseline is less than PLATEAU below the bigram model in any of these seeds.
    """

    tokens: int
    losses: Mapping[int, float]
    advantage: Estimate
    by_seed: Mapping[int, float]
    above: float
    below: float
    own: Mapping[int, float]
    plateau: bool

    @property
    def loss(self) -> float:
        """The baseline's, mean over seeds."""
        return float(np.mean(list(self.losses.values())))

    @property
    def gap(self) -> float | None:
        """The baseline's loss minus the arm's, seed by seed, mean; None if no seed of the arm has a run of D tokens."""
        return float(np.mean([self.losses[seed] - loss for seed, loss in self.own.items()])) if self.own else None


def backbone_of(study: Study, corpus: str) -> tuple[list[Result], dict[str, list[Result]]]:
    """The backbone's results on a corpus, and those of the plan's alternatives to some of them by name."""
    alternatives: dict[str, list[Result]] = {}
    for block in study.plan["blocks"]:
        if "alternative" in block:
            for result in study.of_block(block, corpus):
                alternatives.setdefault(f"{result.pos}, {block['alternative']}", []).append(result)
    apart = {result.key for result in itertools.chain(*alternatives.values())}
    results = (result for result in study.on(corpus) if result.setting == BACKBONE)
    return [result for result in results if result.key not in apart], alternatives


def replaced(backbone: Sequence[Result], alternative: Sequence[Result]) -> list[Result]:
    """The backbone with an alternative to some of its runs; of the baseline only the seeds and budgets of these."""
    at = {(result.seed, result.tokens) for result in alternative}
    results = {(result.pos, result.seed, result.tokens): result for result in (*backbone, *alternative)}
    return [result for result in results.values() if result.pos != BASELINE or (result.seed, result.tokens) in at]


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
    return 0.0 if losses[0] < loss else math.exp(reached(np.log(tokens), losses, loss))


def advantage(results: Sequence[Result], arm: str, baseline: str) -> tuple[Point, ...]:
    """N(D) of an arm over a baseline, for results of one corpus and setting, by rising D."""
    arms = {name: _by_seed(result for result in results if result.pos == name) for name in (arm, baseline)}
    floors = {result.tokens: result.bigram_loss for result in results if result.pos == baseline}
    seeds = sorted(arms[arm].keys() & arms[baseline].keys())
    points = []
    for tokens in sorted({tokens for seed in seeds for tokens in arms[baseline][seed]}):
        losses = {seed: arms[baseline][seed][tokens] for seed in seeds if tokens in arms[baseline][seed]}
        needed = {seed: tokens_to(arms[arm][seed], loss) for seed, loss in losses.items()}
        ends = list(needed.values())
        points.append(
            Point(
                tokens,
                losses,
                speed_up([tokens] * len(ends), ends) if all(ends) else Estimate(math.inf, len(ends)),
                {seed: tokens / budget if budget else math.inf for seed, budget in needed.items()},
                tokens / max(min(arms[arm][seed]) for seed in losses),
                tokens / min(max(arms[arm][seed]) for seed in losses),
                {seed: arms[arm][seed][tokens] for seed in losses if tokens in arms[arm][seed]},
                max(losses.values()) > floors[tokens] - PLATEAU,
            )
        )
    return tuple(points)


def off_plateau(results: Iterable[Result]) -> list[Result]:
    """The results that are not on the bigram model's plateau, where the loss varies more over seeds."""
    return [result for result in results if not result.val_loss > result.bigram_loss - PLATEAU]


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


def trend(points: Sequence[Point]) -> Estimate | None:
    """b in log N = a + b log D: fitted for each seed, mean over seeds. Below 0, N falls as the budget grows.

    The budgets are those off the plateau at which every seed has an N, and the seeds those that all of these budgets
    have: without the seeds that have no N, which lies outside the arm's budgets, N would look flatter than it is. None
    with fewer than TREND_BUDGETS.
    """
    known = _finite(points)
    if len(known) < TREND_BUDGETS:
        return None
    seeds = set.intersection(*(set(point.by_seed) for point in known))
    tokens = np.log([point.tokens for point in known])
    slopes = [float(np.polyfit(tokens, np.log([point.by_seed[seed] for point in known]), 1)[0]) for seed in seeds]
    return mean(slopes) if slopes else None


def growth(points: Sequence[Point]) -> tuple[int, int, Estimate] | None:
    """The two largest budgets off the plateau where every seed has an N, and the ratio of these N, paired by seed."""
    known = _finite(points)[-2:]
    if len(known) < 2:
        return None
    before, after = known
    seeds = before.by_seed.keys() & after.by_seed.keys()
    if not seeds:
        return None
    ratio = speed_up([after.by_seed[seed] for seed in seeds], [before.by_seed[seed] for seed in seeds])
    return before.tokens, after.tokens, ratio


def _finite(points: Sequence[Point]) -> list[Point]:
    """Those off the plateau at which every seed has an N."""
    return [point for point in points if not point.plateau and 0 < point.advantage.value < math.inf]
