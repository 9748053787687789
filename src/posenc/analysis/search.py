"""Hyperparameter search: the trials of each arm, and the expected best loss of k trials."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.results import SEARCH, Result


@dataclass(frozen=True)
class Trial:
    """One setting of an arm's hyperparameters, with its final validation loss, nats per token, mean over seeds."""

    lr: float
    scale: str
    base: str
    loss: float
    seeds: int


def searches(results: Iterable[Result]) -> dict[int, dict[str, tuple[Trial, ...]]]:
    """The trials of each arm, best first, by tokens per run."""
    found: dict[int, dict[str, dict[tuple[float, str, str], list[float]]]] = {}
    for result in results:
        if result.setting == SEARCH:
            arm = found.setdefault(result.tokens, {}).setdefault(result.pos, {})
            arm.setdefault((result.lr, result.scale, result.base), []).append(result.val_loss)
    return {tokens: {pos: _ranked(arms[pos]) for pos in sorted(arms)} for tokens, arms in sorted(found.items())}


def _ranked(losses: Mapping[tuple[float, str, str], Sequence[float]]) -> tuple[Trial, ...]:
    trials = (Trial(*choice, float(np.mean(seeds)), len(seeds)) for choice, seeds in losses.items())
    return tuple(sorted(trials, key=lambda trial: trial.loss))


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
