"""The claim map: how many times fewer tokens one arm needs to reach the loss of another, by budget.

N(D) = D / D_arm(L(D)), where L(D) is the baseline's validation loss at the end of a run of D tokens, and D_arm(L) the
arm's own budget for that loss, interpolated in log D between the arm's budgets. Each budget is a run with its own
schedule, so neither a plateau nor the annealing of the learning rate favours an arm (docs/protocol.md).
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.convergence import Estimate, first_reached, mean, speed_up
from posenc.analysis.results import Result
from posenc.errors import UserError

ROPE, SINUSOID, OTHERS = "rope", "sinusoidal", ("learned", "t5", "alibi", "none")

FAMILIES = {"none": "no positions", "learned": "additive", "sinusoidal": "additive"}
"""Those of the schemes that are not relative."""

PLATEAU = 0.1
"""A baseline that ends less than this many nats below the bigram model is still on its plateau."""

Losses = dict[int, dict[int, float]]
"""Final losses of an arm, by seed, then by tokens."""


@dataclass(frozen=True)
class Point:
    """N(D) at one budget of the baseline.

    Attributes:
        tokens: D.
        baseline_losses: the baseline's final loss, by seed.
        advantage: N(D), geometric mean over the seeds that both arms share; infinite or 0 if that of a seed is.
        by_seed: N(D) of each seed; 0 if no budget of the arm reaches that loss, infinite if its smallest one does.
        above, below: bounds of N(D) where it is infinite or 0: D over the arm's smallest budget, and over its largest.
        arm_losses: the arm's final loss at the same D, by seed, as far as it has been trained.
        plateau: whether the baseline is less than PLATEAU below the bigram model in any of these seeds.
    """

    tokens: int
    baseline_losses: Mapping[int, float]
    advantage: Estimate
    by_seed: Mapping[int, float]
    above: float
    below: float
    arm_losses: Mapping[int, float]
    plateau: bool

    @property
    def loss(self) -> float:
        """The baseline's, mean over seeds."""
        return float(np.mean(list(self.baseline_losses.values())))

    @property
    def gaps(self) -> dict[int, float]:
        """The baseline's loss minus the arm's at the same D, by seed, as far as the arm has been trained."""
        return {seed: self.baseline_losses[seed] - loss for seed, loss in self.arm_losses.items()}

    @property
    def gap(self) -> Estimate | None:
        """The mean of `gaps`; None if there are none."""
        return mean([*self.gaps.values()]) if self.gaps else None

    @property
    def has_ratio(self) -> bool:
        """Whether every seed has an N."""
        return 0 < self.advantage.value < math.inf

    @property
    def bound(self) -> float:
        """N, or a bound of it: the geometric mean over seeds, with its bound for a seed that has no N."""
        bounds = {math.inf: self.above, 0: self.below}
        return statistics.geometric_mean(bounds.get(value, value) for value in self.by_seed.values())


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
    return 0.0 if losses[0] < loss else math.exp(first_reached(np.log(tokens), losses, loss))


def advantage(results: Sequence[Result], arm: str, baseline: str) -> tuple[Point, ...]:
    """N(D) of an arm over a baseline, for results of one corpus and setting, by rising D.

    At each D only seeds count whose arm has runs up to D, or to its longest: a longer run may reach a loss that a
    shorter one does not.
    """
    ours, theirs, seeds = shared(results, arm, baseline)
    floors = {result.tokens: result.bigram_loss for result in results if result.pos == baseline}
    points = []
    for tokens in sorted({tokens for seed in seeds for tokens in theirs[seed]}):
        longest = {seed: min(tokens, max(ours[seed])) for seed in seeds if tokens in theirs[seed]}
        losses = {seed: theirs[seed][tokens] for seed in longest if longest[seed] == max(longest.values())}
        needed = {seed: tokens_to(ours[seed], loss) for seed, loss in losses.items()}
        ends = list(needed.values())
        points.append(
            Point(
                tokens,
                baseline_losses=losses,
                advantage=speed_up([tokens] * len(ends), ends) if all(ends) else Estimate(math.inf, len(ends)),
                by_seed={seed: tokens / budget if budget else math.inf for seed, budget in needed.items()},
                above=tokens / max(min(ours[seed]) for seed in losses),
                below=tokens / min(max(ours[seed]) for seed in losses),
                arm_losses={seed: ours[seed][tokens] for seed in losses if tokens in ours[seed]},
                plateau=max(losses.values()) > floors[tokens] - PLATEAU,
            )
        )
    return tuple(points)


def shared(results: Sequence[Result], arm: str, baseline: str) -> tuple[Losses, Losses, list[int]]:
    """The losses of an arm and of its baseline, by seed, then by tokens, and the seeds that both have."""
    ours, theirs = (_by_seed(result for result in results if result.pos == name) for name in (arm, baseline))
    return ours, theirs, sorted(ours.keys() & theirs.keys())


def _by_seed(results: Iterable[Result]) -> Losses:
    """Losses by seed, then by tokens.

    Raises:
        UserError: if a budget and seed was trained with two sets of hyperparameters.
    """
    losses: Losses = {}
    for result in results:
        of_seed = losses.setdefault(result.seed, {})
        if result.tokens in of_seed:
            raise UserError(f"{result.pos}, seed {result.seed}, {result.tokens:,} tokens appear twice in the results")
        of_seed[result.tokens] = result.val_loss
    return losses


def growth(points: Sequence[Point]) -> tuple[int, int, Estimate] | None:
    """The two largest budgets off the plateau where every seed has an N, and the ratio of these N, paired by seed."""
    known = with_ratio(points)[-2:]
    if len(known) < 2:
        return None
    before, after = known
    seeds = before.by_seed.keys() & after.by_seed.keys()
    if not seeds:
        return None
    ratio = speed_up([after.by_seed[seed] for seed in seeds], [before.by_seed[seed] for seed in seeds])
    return before.tokens, after.tokens, ratio


def with_ratio(points: Sequence[Point]) -> list[Point]:
    """Those off the plateau at which every seed has an N."""
    return [point for point in points if point.has_ratio and not point.plateau]


def from_reversal(points: Sequence[Point]) -> list[int]:
    """The budgets of both arms, in tokens, from the first at which the baseline ends lower."""
    gaps = [(point.tokens, point.gap.value) for point in points if point.gap]
    return [tokens for tokens, _ in itertools.dropwhile(lambda budget: budget[1] >= 0, gaps)]


def compared(points: Sequence[Point]) -> list[Point]:
    """Those off the plateau at which no seed of the baseline ends above the loss of RoPE's smallest budget.

    Before them the baseline's loss falls too steeply to show how near the arms are.
    """
    return [point for point in points if not point.plateau and math.inf not in point.by_seed.values()]
