"""Why a scheme is faster: when its first previous-token head forms, beside the moment the loss falls.

Without order a causal model knows the present token and at best a bag of the others, and its loss comes down to about
that of the text's bigram table; a masked one knows only the bag, and comes down to the token frequencies. The loss
falls further once a head looks at the token before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.convergence import Estimate, mean, reached
from posenc.analysis.runs import Run
from posenc.report import formatting

FORMED = 0.1
"""Share of its attention on the previous token from which a head counts as formed; even attention gives 1.4 / T."""

DROPPED = 0.1
"""Nats under the orderless loss at which a loss counts as having left it behind."""


@dataclass(frozen=True)
class Orderless:
    """What can be had of a text without order.

    Attributes:
        loss: nats per token.
        table: what has that loss.
        known: what it looks at.
    """

    loss: float
    table: str
    known: str


@dataclass(frozen=True)
class Row:
    """One scheme.

    Attributes:
        scheme: its name.
        formed: steps to its first previous-token head.
        dropped: steps to a loss of DROPPED under the orderless one; None where that is not known.
        share, induction: of the best head, at the end.
    """

    scheme: str
    formed: Estimate
    dropped: Estimate | None
    share: Estimate
    induction: Estimate


@dataclass(frozen=True)
class Story:
    """What the attention heads of a panel say about its losses.

    Attributes:
        sentence: in words.
        rows: a scheme each, the first to form a head first.
        orderless: what can be had without order; None where no run is finished.
        heads: every head of one run a scheme at its end: scheme, seed, layer, head and its shares by distance.
    """

    sentence: str
    rows: tuple[Row, ...]
    orderless: Orderless | None
    heads: tuple[Mapping[str, object], ...]


def measured(arms: Sequence[Arm]) -> bool:
    """Whether every run of these arms has looked at its heads."""
    return all(np.isfinite(run.curve["previous_token"]).any() for arm in arms for run in arm.runs)


def orderless(panel: Panel) -> Orderless | None:
    """What can be had without order, as the runs have it; a masked run has no bigram loss."""
    summaries = [run.summary for arm in panel.arms for run in arm.runs if run.finished]
    if not summaries:
        return None
    if "bigram_loss" in summaries[0]:
        loss = summaries[0]["bigram_loss"]
        return None if loss is None else Orderless(loss, "bigram table", "the present token alone")
    loss = summaries[0].get("unigram_loss")
    return None if loss is None else Orderless(loss, "token frequencies", "the frequencies of tokens")


def formed(run: Run) -> float:
    """The first step at which the best head gives FORMED of its attention to the token before; infinite if never."""
    steps, shares = _known(run, "previous_token")
    return reached(steps, -shares, -FORMED)


def _known(run: Run, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The steps at which the heads were looked at, which need not be those of every validation, and what was seen."""
    known = np.isfinite(run.curve[measure])
    return run.curve["step"][known], run.curve[measure][known]


def dropped(run: Run, floor: float) -> float:
    """The first step at which the loss is DROPPED under the orderless one; infinite if never."""
    return reached(run.curve["step"], run.curve["val_loss"], floor - DROPPED)


def story(panel: Panel) -> Story | None:
    """The panel's heads beside its losses, or None if they were not looked at."""
    if not measured(panel.arms):
        return None
    floor = orderless(panel)
    rows = [
        Row(
            arm.scheme,
            mean([formed(run) for run in arm.runs]),
            None if floor is None else mean([dropped(run, floor.loss) for run in arm.runs]),
            mean([float(_known(run, "previous_token")[1][-1]) for run in arm.runs]),
            mean([float(_known(run, "induction")[1][-1]) for run in arm.runs]),
        )
        for arm in panel.arms
    ]
    rows.sort(key=lambda row: row.formed.value)
    return Story(_sentence(rows, panel, floor), tuple(rows), floor, tuple(_heads(panel)))


def _sentence(rows: Sequence[Row], panel: Panel, floor: Orderless | None) -> str:
    heads = ", ".join(f"{row.scheme} {_at(row.formed)}" for row in rows)
    sentence = f"The first head that looks at the token before forms, in steps: {heads}."
    if floor is None:
        return sentence
    falls = ", ".join(f"{row.scheme} {_at(row.dropped)}" for row in rows if row.dropped)
    sentence += (
        f" The loss falls {DROPPED} under the {floor.loss:.2f} nats that can be had from {floor.known}: {falls}."
    )
    runs = [run for arm in panel.arms for run in arm.runs]
    pairs = [(run.scheme, formed(run), dropped(run, floor.loss)) for run in runs]
    both = [pair for pair in pairs if all(map(math.isfinite, pair[1:]))]
    neither = sum(all(map(math.isinf, pair[1:])) for pair in pairs)
    times = np.array([pair[1:] for pair in both])
    # Within one scheme, or where one of the two always comes at the same step, there is nothing to correlate.
    if len({scheme for scheme, *_ in both}) > 2 and np.ptp(times, axis=0).all():
        rank = stats.spearmanr(times).statistic
        sentence += f" Over all {len(both)} runs in which both happen, the rank correlation of the two is {rank:.2f}."
    if neither:
        sentence += f" In {neither} of {len(pairs)} runs neither happens."
    return sentence


def _at(estimate: Estimate | None) -> str:
    if estimate is None or estimate.missed == estimate.seeds:
        return "not at all"
    return formatting.steps(estimate)


def _heads(panel: Panel) -> list[Mapping[str, object]]:
    """The heads of each scheme's first run, after its last validation."""
    rows: list[Mapping[str, object]] = []
    for arm in panel.arms:
        run = arm.runs[0]
        end = max((head["step"] for head in run.heads), default=0)
        last = [head for head in run.heads if head["step"] == end]
        for head in last:
            shares = {name: value for name, value in head.items() if name not in ("step", "layer", "head")}
            place = {"layer": int(head["layer"]) + 1, "head": int(head["head"]) + 1}
            rows.append({"scheme": arm.scheme, "seed": run.seed, **place, "shares": shares})
    return rows
