"""When a scheme's first previous-token head forms, beside the moment its loss leaves the n-gram baseline.

Without order a causal model knows the present token and at best a bag of the others, and its loss comes down to about
that of a bigram model; a masked one knows only the bag, and comes down to the token frequencies, a unigram model.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from posenc.analysis.arms import Arm
from posenc.analysis.convergence import Array, Estimate, mean, reached
from posenc.analysis.runs import Run

FORMED = 0.1
"""Previous-token score from which a head counts as formed."""

SCORES = ("previous_token", "induction")
"""What is measured of every head."""

DROPPED = 0.1
"""Nats under the n-gram baseline at which a loss counts as having left it behind."""


@dataclass(frozen=True)
class NGramBaseline:
    """The n-gram model that a model without order comes down to.

    Attributes:
        loss: nats per token.
        name: of the n-gram model.
    """

    loss: float
    name: str


@dataclass(frozen=True)
class SchemeHeads:
    """One scheme.

    Attributes:
        scheme: its name.
        formed: steps to its first previous-token head.
        dropped: steps to a loss of DROPPED under the n-gram baseline; None where that is not known.
        scores: of the best head, at the end.
    """

    scheme: str
    formed: Estimate
    dropped: Estimate | None
    scores: Mapping[str, Estimate]


@dataclass(frozen=True)
class HeadAnalysis:
    """What the attention heads of a panel do beside its losses.

    Attributes:
        rows: a scheme each, the first to form a head first.
        ngram: what can be had without order; None where that is not known.
        runs, both, neither: how many runs there are, in how many a head forms and the loss drops, in how many neither.
        correlation: rank correlation of the two steps over the runs with both; None where there is nothing to
            correlate.
        heads: every head of one run a scheme at its end: scheme, seed, layer, head and its attention by distance.
    """

    rows: tuple[SchemeHeads, ...]
    ngram: NGramBaseline | None
    runs: int
    both: int
    neither: int
    correlation: float | None
    heads: tuple[Mapping[str, object], ...]


def ngram_baseline(arms: Sequence[Arm]) -> NGramBaseline | None:
    """As the runs have it; None where none is finished, or the text is too thin for one."""
    summary = next((run.summary for arm in arms for run in arm.runs if run.finished), {})
    for order in ("bigram", "unigram"):
        if summary.get(f"{order}_loss") is not None:
            return NGramBaseline(summary[f"{order}_loss"], f"{order} model")
    return None


def formed(run: Run) -> float:
    """The first step at which the best head's previous-token score is FORMED; infinite if never."""
    steps, scores = _measured(run, "previous_token")
    return reached(steps, -scores, -FORMED)


def dropped(run: Run, floor: float) -> float:
    """The first step at which the loss is DROPPED under the n-gram baseline; infinite if never."""
    return reached(run.curve["step"], run.curve["val_loss"], floor - DROPPED)


def _measured(run: Run, score: str) -> tuple[Array, Array]:
    """The steps at which the heads were measured, which need not be those of every validation, and their score."""
    known = np.isfinite(run.curve[score])
    return run.curve["step"][known], run.curve[score][known]


def analyse_heads(arms: Sequence[Arm], ngram: NGramBaseline | None) -> HeadAnalysis | None:
    """The heads of a panel's arms, or None if a run did not measure them, or at its end only: when did they form?"""
    runs = [run for arm in arms for run in arm.runs]
    if not all(np.isfinite(run.curve["previous_token"]).sum() > 1 for run in runs):
        return None
    rows = sorted((_row(arm, ngram) for arm in arms), key=lambda row: row.formed.value)
    pairs = [(run.scheme, formed(run), dropped(run, ngram.loss)) for run in runs] if ngram else []
    both = [pair for pair in pairs if all(map(math.isfinite, pair[1:]))]
    return HeadAnalysis(
        tuple(rows),
        ngram,
        len(runs),
        len(both),
        sum(all(map(math.isinf, pair[1:])) for pair in pairs),
        _correlation([pair[0] for pair in both], np.array([pair[1:] for pair in both])),
        tuple(head for arm in arms for head in _heads_at_the_end(arm.runs[0])),
    )


def _row(arm: Arm, ngram: NGramBaseline | None) -> SchemeHeads:
    return SchemeHeads(
        arm.scheme,
        mean([formed(run) for run in arm.runs]),
        mean([dropped(run, ngram.loss) for run in arm.runs]) if ngram else None,
        {score: mean([float(_measured(run, score)[1][-1]) for run in arm.runs], share=True) for score in SCORES},
    )


def _correlation(schemes: Sequence[str], steps: Array) -> float | None:
    """Of two columns; within one or two schemes, or where a column is constant, there is nothing to correlate."""
    if len(set(schemes)) < 3 or not np.ptp(steps, axis=0).all():
        return None
    return float(stats.spearmanr(steps).statistic)


def _heads_at_the_end(run: Run) -> Iterator[Mapping[str, object]]:
    """Its heads after the last validation."""
    end = max((head["step"] for head in run.heads), default=0)
    for head in run.heads:
        if head["step"] == end:
            scores = {name: value for name, value in head.items() if name not in ("step", "layer", "head")}
            number = {"layer": int(head["layer"]) + 1, "head": int(head["head"]) + 1}
            yield {"scheme": run.scheme, "seed": run.seed, **number, "scores": scores}
