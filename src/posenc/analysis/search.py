"""The search for each arm's hyperparameters: its trials, and the loss that a search of a given size comes to."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.analysis.results import SEARCH, Result


@dataclass(frozen=True)
class Trial:
    """One choice of hyperparameters of an arm.

    Attributes:
        lr, scale, base: the choice; empty where the scheme has none.
        loss: at the end of the run, nats per token, mean over the seeds it was tried with.
        seeds: how many.
    """

    lr: float
    scale: str
    base: str
    loss: float
    seeds: int


def searches(results: Iterable[Result]) -> dict[int, dict[str, tuple[Trial, ...]]]:
    """The trials of each arm, best first, by the tokens of their runs."""
    found: dict[int, dict[str, dict[tuple[float, str, str], list[float]]]] = {}
    for result in results:
        if result.setting == SEARCH:
            arm = found.setdefault(result.tokens, {}).setdefault(result.pos, {})
            arm.setdefault((result.lr, result.scale, result.base), []).append(result.val_loss)
    return {tokens: {pos: _ranked(arms[pos]) for pos in sorted(arms)} for tokens, arms in sorted(found.items())}


def _ranked(losses: Mapping[tuple[float, str, str], Sequence[float]]) -> tuple[Trial, ...]:
    trials = (Trial(*choice, float(np.mean(found)), len(found)) for choice, found in losses.items())
    return tuple(sorted(trials, key=lambda trial: trial.loss))


def expected_best(losses: Sequence[float]) -> list[float]:
    """The lowest loss that k of the trials come to, mean over all ways to draw k of them: k = 1 .. all.

    With the losses sorted, the i-th of n (from 0) is the best of k in C(n - 1 - i, k - 1) of the C(n, k) draws
    (Dodge et al. 2019, "Show Your Work", for draws with replacement).
    """
    ranked, n = sorted(losses), len(losses)
    return [
        sum(loss * math.comb(n - 1 - i, k - 1) for i, loss in enumerate(ranked)) / math.comb(n, k)
        for k in range(1, n + 1)
    ]
