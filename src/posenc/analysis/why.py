"""The effect of an intervention: the share of the reference's advantage that an arm has with it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.analysis.convergence import Estimate, first_reached, mean, speed_up
from posenc.analysis.results import AblationRow
from posenc.analysis.study import Study
from posenc.bounds import Positive
from posenc.storage.csv_files import read_rows
from posenc.storage.reading import check_types

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and validation losses."""

Curves = Mapping[int, Curve]
"""The curves of one arm by seed."""


@dataclass(frozen=True)
class Effect:
    """An arm compared with the reference, which has the advantage, and the origin, which lacks it.

    Attributes:
        share: share of the reference's advantage over the origin, in the logarithm of the steps to the origin's lowest
            loss: 0 for the origin, 1 for the reference. Infinite if the arm or the reference never reaches it, or the
            reference has no advantage.
        gain: likewise, in the final loss; infinite if the reference does not end lower.
        speed_up: times fewer steps to the origin's lowest loss than the origin needs.
        last_loss: nats per token, over the seeds with all three arms.
        behind: last_loss minus the reference's, paired by seed.
        change: last_loss minus the origin's, likewise.
        steps: to each level, geometric mean; infinite if a seed never reaches it.
    """

    share: Estimate
    gain: Estimate
    speed_up: Estimate
    last_loss: Estimate
    behind: Estimate
    change: Estimate
    steps: tuple[float, ...]


def effect(arm: Curves, origin: Curves, reference: Curves, levels: Sequence[float]) -> Effect | None:
    """The effect of an intervention, seed by seed; None if no seed has all three arms.

    Args:
        arm: with the intervention.
        origin: without it, or without any positions.
        reference: the arm whose advantage is to be explained.
        levels: nats per token.
    """
    seeds = sorted(arm.keys() & origin.keys() & reference.keys())
    if not seeds:
        return None
    shares = [share_of_advantage(arm[seed], origin[seed], reference[seed]) for seed in seeds]
    own_steps, origin_steps = zip(
        *(steps_to_lowest(origin[seed], arm[seed], origin[seed]) for seed in seeds), strict=True
    )
    ends = [[curve[seed][1][-1] for curve in (origin, arm, reference)] for seed in seeds]
    logs = [[math.log(first_reached(*arm[seed], level)) for seed in seeds] for level in levels]
    return Effect(
        share=mean(shares),
        gain=mean([(start - own) / (start - best) if start > best else math.inf for start, own, best in ends]),
        speed_up=speed_up(origin_steps, own_steps),
        last_loss=mean([own for _, own, _ in ends]),
        behind=mean([own - best for _, own, best in ends]),
        change=mean([own - start for start, own, _ in ends]),
        steps=tuple(math.exp(mean(of_level).value) for of_level in logs),
    )


def share_of_advantage(arm: Curve, origin: Curve, reference: Curve) -> float:
    """log(S_origin / S_arm) / log(S_origin / S_reference), where S is the steps to the origin's lowest loss."""
    steps, reference_steps, origin_steps = steps_to_lowest(origin, arm, reference, origin)
    if math.inf in (steps, reference_steps) or reference_steps >= origin_steps:
        return math.inf
    return math.log(origin_steps / steps) / math.log(origin_steps / reference_steps)


def steps_to_lowest(origin: Curve, *curves: Curve) -> list[float]:
    """The steps of each curve to the lowest loss of the origin."""
    return [first_reached(*curve, min(origin[1])) for curve in curves]


@dataclass(frozen=True)
class Group:
    """Interventions of one kind.

    Attributes:
        what: description of the kind.
        origin: the name of the origin; None for the group of origins and references.
        axis: the quantity of which the arms' names are values, if they are numbers; otherwise None.
        shares: whether the arms solve the reference's task, and are not the reference itself.
        effects: by name, for each arm that has been trained.
        heads: by name, for each arm whose attention was measured: the highest previous-token score by layer.
    """

    what: str
    origin: str | None
    axis: str | None
    shares: bool
    effects: Mapping[str, Effect]
    heads: Mapping[str, Mapping[int, Estimate]]

    @property
    def explains(self) -> bool:
        """Whether there are shares to show."""
        return self.shares and self.origin is not None and bool(self.effects)


@dataclass(frozen=True)
class Ablation:
    """What a trained model relies on: its loss when attention at one offset is masked at evaluation.

    Attributes:
        row: a row of the arm, for its names.
        losses: nats per token by masked offset, 0 for none.
    """

    row: AblationRow
    losses: Mapping[int, Estimate]


def ablations(study: Study) -> list[Ablation]:
    """One for each arm in ablation.csv, by corpus and tokens, in the order of the unmodified loss."""
    rows: dict[object, dict[int, list[AblationRow]]] = {}
    for row in read_rows(study.folder / "ablation.csv", AblationRow):
        rows.setdefault(row.arm, {}).setdefault(row.masked_offset, []).append(row)
    found = [
        Ablation(of[0][0], {offset: mean([row.val_loss for row in of[offset]]) for offset in sorted(of)})
        for of in rows.values()
        if 0 in of
    ]
    return sorted(found, key=lambda one: (one.row.corpus, one.row.tokens, one.losses[0].value))


_Block = TypedDict(
    "_Block", {"what": str, "from": NotRequired[str], "axis": NotRequired[str], "shares": NotRequired[bool]}
)
"""The keys of a block of such a study."""


class _Plan(TypedDict):
    """The keys of its plan."""

    reference: str
    levels: list[Positive]
    blocks: list[_Block]


def groups(study: Study, corpus: str) -> list[Group]:
    """The effects of the interventions on a corpus, by block of the plan."""
    check_types(study.folder / "plan.yaml", study.plan, _Plan)
    reference = study.curves(study.arm(study.plan["reference"]), corpus)
    result = []
    for block in study.plan["blocks"]:
        origin = study.curves(study.arm(block.get("from", "none")), corpus)
        effects = {
            name: one
            for name, arm in block["arms"].items()
            if (one := effect(study.curves(arm, corpus), origin, reference, study.plan["levels"]))
        }
        heads = {
            name: {layer: mean(scores, share=True) for layer, scores in by_layer.items()}
            for name, arm in block["arms"].items()
            if (by_layer := study.heads(arm, corpus))
        }
        shares = block.get("shares", True)
        result.append(Group(block["what"], block.get("from"), block.get("axis"), shares, effects, heads))
    return result
