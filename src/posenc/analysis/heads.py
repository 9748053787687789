"""When attention heads that look at the previous token form, beside the loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis import words
from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.convergence import Estimate, mean, reached
from posenc.analysis.runs import Run

FORMED = 0.25
"""The share of a head's attention on the previous token from which it counts as a previous-token head."""


def formed(run: Run) -> float:
    """The first step at which the best head gives FORMED of its attention to the token before; infinite if never."""
    return reached(run.curve["step"], -run.curve["previous_token"], -FORMED)


def measured(arms: Sequence[Arm]) -> bool:
    """Whether every run of these arms has looked at its heads."""
    return all(np.isfinite(run.curve["previous_token"]).any() for arm in arms for run in arm.runs)


@dataclass(frozen=True)
class Row:
    """A scheme's heads in words: when the first formed, how it ended, whether it copies."""

    scheme: str
    formed: str
    share: str
    induction: str


@dataclass(frozen=True)
class Story:
    """What the attention heads of a panel say about its losses."""

    sentence: str
    rows: tuple[Row, ...]
    heads: tuple[Mapping[str, object], ...]


def story(panel: Panel) -> Story | None:
    """The panel's heads beside its losses, or None if they were not looked at."""
    if not measured(panel.arms):
        return None
    formations = {arm.scheme: mean([formed(run) for run in arm.runs]) for arm in panel.arms}
    rows = tuple(
        Row(
            arm.scheme,
            words.steps(formations[arm.scheme]),
            words.interval(last(arm, "previous_token"), 2),
            words.interval(last(arm, "induction"), 3),
        )
        for arm in panel.arms
    )
    return Story(_sentence(formations), rows, ())


def last(arm: Arm, measure: str) -> Estimate:
    """What the last validation measured."""
    return mean([float(run.curve[measure][-1]) for run in arm.runs])


def _sentence(formations: Mapping[str, Estimate]) -> str:
    parts = [
        f"{scheme}'s at step {words.steps(estimate)}" if not estimate.missed else f"{scheme}'s not at all"
        for scheme, estimate in formations.items()
    ]
    return f"The first previous-token head forms: {', '.join(parts)}."
