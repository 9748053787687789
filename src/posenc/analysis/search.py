"""Hyperparameter search: the trials of each arm, and the expected best loss of k trials."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from posenc.analysis.results import Result, by_arm
from posenc.analysis.run_key import SEARCH


@dataclass(frozen=True)
class Trial:
    """One setting of an arm's hyperparameters, with its final validation loss, nats per token, mean over seeds."""

    lr: float
    scale: str
    base: str
    loss: float
    seeds: int


def searches(results: Iterable[Result]) -> dict[int, dict[str, list[Trial]]]:
    """The trials of each scheme on one corpus, best first, by tokens per run."""
    found: dict[int, dict[str, list[Trial]]] = {}
    for runs in by_arm(result for result in results if result.setting == SEARCH):
        one, loss = runs[0], float(np.mean([run.val_loss for run in runs]))
        trial = Trial(one.lr, one.scale, one.base, loss, seeds=len(runs))
        found.setdefault(one.tokens, {}).setdefault(one.pos, []).append(trial)
    return {
        tokens: {pos: sorted(trials, key=attrgetter("loss")) for pos, trials in schemes.items()}
        for tokens, schemes in sorted(found.items())
    }


def expected_best(losses: Sequence[float]) -> list[float]:
    """The expected lowest loss of k of the n trials, sampled without replacement, for k = 1 .. n.

    With the losses sorted, the i-th (from 0) is the best of k in C(n - 1 - i, k - 1) of the C(n, k) samples (Dodge et
    al. 2019, "Show Your Work", who sample with replacement).
    """
    ranked, n = sorted(losses), len(losses)
    return [
        sum(loss * math.comb(n - 1 - i, k - 1) for i, loss in enumerate(ranked)) / math.comb(n, k)
        for k in range(1, n + 1)
    ]
