"""The tokens that two arms need for the same loss: N(D) from the arm's side, and at the losses of other models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posenc.analysis.claim_map import Losses, shared, tokens_to
from posenc.analysis.convergence import Estimate, speed_up
from posenc.analysis.results import Result


@dataclass(frozen=True)
class Level:
    """The tokens that both arms need for the same loss.

    Attributes:
        losses: nats per token, by seed.
        needed: the arm's tokens to that loss by seed; of a seed whose smallest budget is enough, that budget.
        baseline: the baseline's tokens by seed; of a seed whose largest budget is not enough, that budget.
        is_bound: whether there is such a seed, so that the ratio is a lower bound.
        ratio: the baseline's tokens over the arm's, geometric mean; without an interval if it is a bound.
    """

    losses: Mapping[int, float]
    needed: Mapping[int, float]
    baseline: Mapping[int, float]
    is_bound: bool

    @property
    def ratio(self) -> Estimate:
        found = speed_up(list(self.baseline.values()), list(self.needed.values()))
        return Estimate(found.value, found.seeds) if self.is_bound else found


def levels_of_arm(results: Sequence[Result], arm: str, baseline: str) -> tuple[Level, ...]:
    """At the arm's final loss with each of its budgets D, seed by seed, the baseline's tokens to it, by rising D.

    N(D) asks for the arm's tokens to the baseline's loss. This is the same from the other side: it has a value where
    the arm's largest budget does not reach the baseline's loss.
    """
    ours, theirs, seeds = shared(results, arm, baseline)
    budgets = sorted({tokens for seed in seeds for tokens in ours[seed]})
    losses = [{seed: ours[seed][tokens] for seed in seeds if tokens in ours[seed]} for tokens in budgets]
    return tuple(filter(None, (_level(ours, theirs, of_budget) for of_budget in losses)))


def level(results: Sequence[Result], arm: str, baseline: str, loss: float) -> Level | None:
    """The level of a loss over the seeds that both arms share.

    None without a shared seed, if a seed's arm never reaches the loss, or if the smallest budget of a seed's baseline
    is already enough.
    """
    ours, theirs, seeds = shared(results, arm, baseline)
    found = seeds and all(tokens_to(ours[seed], loss) < math.inf for seed in seeds)
    return _level(ours, theirs, dict.fromkeys(seeds, loss)) if found else None


def _level(ours: Losses, theirs: Losses, losses: Mapping[int, float]) -> Level | None:
    """The level of a loss for each seed, which the arm reaches.

    If a seed's largest budget of the baseline is not enough, the seeds count that have the largest of all. None if a
    seed's smallest budget of the baseline is enough: then the ratio has no lower bound.
    """
    others = {seed: tokens_to(theirs[seed], loss) for seed, loss in losses.items()}
    if not all(others.values()):
        return None
    if math.inf in others.values():
        longest = max(max(theirs[seed]) for seed in losses)
        losses = {seed: loss for seed, loss in losses.items() if max(theirs[seed]) == longest}
        others = {seed: others[seed] for seed in losses}
    needed = {seed: tokens_to(ours[seed], loss) for seed, loss in losses.items()}
    return Level(
        losses,
        {seed: tokens or min(ours[seed]) for seed, tokens in needed.items()},
        {seed: min(tokens, max(theirs[seed])) for seed, tokens in others.items()},
        not all(needed.values()) or math.inf in others.values(),
    )
