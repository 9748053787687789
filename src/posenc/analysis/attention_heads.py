"""When a scheme's first previous-token head forms, and when its loss falls below the n-gram baseline.

Without order a causal model knows the current token and at best a bag of the others, and plateaus at about the loss of
a bigram model; a masked model knows only the bag, and plateaus at the token frequencies, a unigram model.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from posenc.analysis.arms import Arm
from posenc.analysis.convergence import Array, Estimate, mean, reached
from posenc.analysis.runs import Run

FORMED = 0.1
"""Previous-token score from which a head counts as formed."""

SCORES = ("previous_token", "induction")
"""The scores of every head."""

DROPPED = 0.1
"""Nats below the n-gram baseline from which the loss counts as having dropped."""


@dataclass(frozen=True)
class NGramBaseline:
    """The n-gram model at which a model without positions plateaus, and its loss in nats per token."""

    loss: float
    name: str


@dataclass(frozen=True)
class SchemeHeads:
    """The heads of one scheme.

    Attributes:
        formed: steps to its first previous-token head.
        dropped: steps to a loss of DROPPED below the n-gram baseline; None if that is unknown.
        scores: of the best head, at the end.
    """

    scheme: str
    formed: Estimate
    dropped: Estimate | None
    scores: Mapping[str, Estimate]


@dataclass(frozen=True)
class HeadAnalysis:
    """The attention heads of a panel.

    Attributes:
        rows: one per scheme, sorted by when the first head forms.
        runs, both, neither: number of runs in total, with a head and a drop of the loss, and with neither.
        correlation: rank correlation of the two steps over the runs with both; None if it is not defined.
        heads: every head of one run per scheme at its end: scheme, layer, head and its attention by distance.
    """

    rows: tuple[SchemeHeads, ...]
    ngram: NGramBaseline | None
    runs: int
    both: int
    neither: int
    correlation: float | None
    heads: tuple[Mapping[str, object], ...]


def ngram_baseline(runs: Iterable[Run]) -> NGramBaseline | None:
    """The n-gram baseline of the runs; None if none is finished, or the text is too short for one."""
    summary = next((run.summary for run in runs if run.finished), {})
    for order in ("bigram", "unigram"):
        if summary.get(f"{order}_loss") is not None:
            return NGramBaseline(summary[f"{order}_loss"], f"{order} model")
    return None


def formed(run: Run) -> float:
    """The first step at which the best head's previous-token score is FORMED; infinite if never."""
    steps, scores = _measured(run, "previous_token")
    return reached(steps, -scores, -FORMED)


def dropped(run: Run, floor: float) -> float:
    """The first step at which the loss is DROPPED below the n-gram baseline; infinite if never."""
    return reached(run.curve["step"], run.curve["val_loss"], floor - DROPPED)


def _measured(run: Run, score: str) -> tuple[Array, Array]:
    """The steps at which the heads were measured, which may be a subset of the validations, and their score."""
    known = np.isfinite(run.curve[score])
    return run.curve["step"][known], run.curve[score][known]


def analyse_heads(arms: Sequence[Arm], ngram: NGramBaseline | None) -> HeadAnalysis | None:
    """The heads of a panel's arms; None if a run measured them never or only at its end."""
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
    """Rank correlation of two columns; None with fewer than three schemes, or if a column is constant."""
    if len(set(schemes)) < 3 or not np.ptp(steps, axis=0).all():
        return None
    return float(stats.spearmanr(steps).statistic)


def _heads_at_the_end(run: Run) -> Iterator[Mapping[str, object]]:
    """The heads of a run after the last validation."""
    end = max((head["step"] for head in run.heads), default=0)
    for head in run.heads:
        if head["step"] == end:
            scores = {name: value for name, value in head.items() if name not in ("step", "layer", "head")}
            number = {"layer": int(head["layer"]) + 1, "head": int(head["head"]) + 1}
            yield {"scheme": run.scheme, **number, "scores": scores}
