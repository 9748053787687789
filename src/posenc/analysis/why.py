"""What an intervention explains: how much of one arm's advantage another arm gains when it is given a part of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posenc.analysis.convergence import Estimate, figures_only, mean, reached

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and validation losses."""

Curves = Mapping[int, Curve]
"""Of one arm, by seed."""


@dataclass(frozen=True)
class Effect:
    """An arm beside the reference, which has the advantage, and an origin, which lacks it.

    Attributes:
        seeds: in which all three were trained.
        share: of the reference's advantage over the origin that the arm has, in the logarithm of steps to the origin's
            lowest loss: 0 for the origin, 1 for the reference. Infinite where some seed never comes to that loss.
        gain: likewise, in the last loss.
        last_loss: nats per token.
        steps: to each level, geometric mean; infinite where some seed never comes to it.
    """

    seeds: int
    share: Estimate
    gain: Estimate
    last_loss: Estimate
    steps: tuple[float, ...]


def effect(arm: Curves, origin: Curves, reference: Curves, levels: Sequence[float]) -> Effect | None:
    """The effect of an intervention, seed by seed; None where no seed has all three.

    Args:
        arm: with the intervention.
        origin: what it was done to, or the arm without any positions.
        reference: the arm whose advantage is to be explained.
        levels: nats per token.
    """
    seeds = sorted(arm.keys() & origin.keys() & reference.keys())
    if not seeds:
        return None
    shares = [share_of_advantage(arm[seed], origin[seed], reference[seed]) for seed in seeds]
    ends = [[curve[seed][1][-1] for curve in (origin, arm, reference)] for seed in seeds]
    return Effect(
        len(seeds),
        figures_only(mean(shares)),
        figures_only(mean([(of_origin - own) / (of_origin - best) for of_origin, own, best in ends])),
        figures_only(mean([arm[seed][1][-1] for seed in seeds])),
        tuple(math.exp(mean([math.log(reached(*arm[seed], level)) for seed in seeds]).value) for level in levels),
    )


def share_of_advantage(arm: Curve, origin: Curve, reference: Curve) -> float:
    """log(S_origin / S_arm) / log(S_origin / S_reference), where S is the steps to the origin's lowest loss."""
    level = min(origin[1])
    needed, of_reference, of_origin = (reached(*curve, level) for curve in (arm, reference, origin))
    if math.isinf(needed):
        return math.inf
    return math.log(of_origin / needed) / math.log(of_origin / of_reference)


@dataclass(frozen=True)
class Group:
    """Interventions of one kind.

    Attributes:
        what: the kind, in a line.
        origin: the name of the arm that they are held against; None for the arms that others are held against.
        axis: what the names of the arms are values of, if they are numbers on an axis; else None.
        effects: of each arm that has been trained, by name.
    """

    what: str
    origin: str | None
    axis: str | None
    effects: Mapping[str, Effect]

    @property
    def explains(self) -> bool:
        """Whether there is a share of anything to show."""
        return self.origin is not None and bool(self.effects)
