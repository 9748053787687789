"""The scores of attention heads, and when the loss falls below the n-gram baseline.

Without order a causal model knows the current token and at best a bag of the others, and plateaus at about the loss of
a bigram model; a masked model knows only the bag, and plateaus at the token frequencies, a unigram model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.arms import Arm
from posenc.analysis.convergence import Estimate, first_reached, mean
from posenc.analysis.runs import SCORES, Run

DROPPED = 0.1
"""Nats below the n-gram baseline from which the loss counts as having dropped."""


@dataclass(frozen=True)
class NGramBaseline:
    """The n-gram model at which a model without positions plateaus.

    Attributes:
        loss: nats per token.
        order: bigram or unigram.
    """

    loss: float
    order: str


@dataclass(frozen=True)
class SchemeHeads:
    """The heads of one scheme.

    Attributes:
        dropped: steps to a loss of DROPPED below the n-gram baseline; None if that is unknown.
        scores: of the best head, at the end.
        each: every head of one run at its end: scheme, layer and head, both from 1, and its attention by distance.
    """

    scheme: str
    dropped: Estimate | None
    scores: Mapping[str, Estimate]
    each: tuple[Mapping[str, object], ...]


def ngram_baseline(runs: Iterable[Run]) -> NGramBaseline | None:
    """The n-gram baseline of the runs; None if none is finished, or the text is too short for one."""
    summary = next((run.summary for run in runs if run.finished), {})
    for order in ("bigram", "unigram"):
        if summary.get(f"{order}_loss") is not None:
            return NGramBaseline(summary[f"{order}_loss"], order)
    return None


def dropped(run: Run, floor: float) -> float:
    """The first step at which the loss is DROPPED below the n-gram baseline; infinite if never."""
    return first_reached(run.curve["step"], run.curve["val_loss"], floor - DROPPED)


def scheme_heads(arms: Sequence[Arm], ngram: NGramBaseline | None) -> tuple[SchemeHeads, ...]:
    """The heads of a panel's arms, by rising final loss; none if a run measured them never or only at its end."""
    runs = [run for arm in arms for run in arm.runs]
    if not all(np.isfinite(run.curve[score]).sum() > 1 for run in runs for score in SCORES):
        return ()
    return tuple(
        SchemeHeads(
            arm.scheme,
            mean([dropped(run, ngram.loss) for run in arm.runs]) if ngram else None,
            {score: mean([_last(run, score) for run in arm.runs], share=True) for score in SCORES},
            tuple(_heads_at_the_end(arm.runs[0])),
        )
        for arm in arms
    )


def _last(run: Run, score: str) -> float:
    """The last value of a score, which may be measured at a subset of the validations."""
    values = run.curve[score]
    return float(values[np.isfinite(values)][-1])


def _heads_at_the_end(run: Run) -> Iterator[Mapping[str, object]]:
    """The heads of a run after the last validation."""
    end = max((head["step"] for head in run.heads), default=0)
    for head in run.heads:
        if head["step"] == end:
            scores = {name: value for name, value in head.items() if name not in ("step", "layer", "head")}
            number = {"layer": int(head["layer"]) + 1, "head": int(head["head"]) + 1}
            yield {"scheme": run.scheme, **number, "scores": scores}
