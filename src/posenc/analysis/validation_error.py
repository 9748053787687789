"""Validation's own error in the difference between a scheme and RoPE."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posenc.analysis.claim_map import ROPE
from posenc.analysis.corpus_map import replaced
from posenc.analysis.results import BlockRow, Result
from posenc.analysis.run_key import Key
from posenc.errors import UserError


@dataclass(frozen=True)
class Difference:
    """The loss of a scheme minus RoPE's, nats per token, mean over the seeds that both have.

    Attributes:
        pairs: a run of the scheme and RoPE's, for each seed.
        value: on the whole validation split.
        se: its standard error over blocks of the split, of which all runs have the same; it does not cover seeds.
        reported: on the windows of the last validation in training.
    """

    pairs: tuple[tuple[Result, Result], ...]
    value: float
    se: float

    @property
    def reported(self) -> float:
        return float(np.mean([run.val_loss - rope.val_loss for run, rope in self.pairs]))

    @property
    def precise(self) -> bool:
        """Whether the standard error is under a tenth of the difference."""
        return 10 * self.se < abs(self.value)


def differences(
    backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], rows: Iterable[BlockRow]
) -> list[Difference]:
    """Those between the arms of one corpus, in its backbone or with one of the alternatives to it, by rising budget.

    Raises:
        UserError: if the runs have different numbers of blocks.
    """
    losses = {row.key: np.array(row.losses) for row in rows}
    if len({len(of_run) for of_run in losses.values()}) > 1:
        raise UserError("runs on one corpus have different numbers of blocks")
    pairs: dict[tuple[object, object], dict[int, tuple[Result, Result]]] = {}
    for results in (backbone, *(replaced(backbone, found) for found in alternatives.values())):
        measured = [result for result in results if result.key in losses]
        ropes = {(result.seed, result.tokens): result for result in measured if result.pos == ROPE}
        for run in measured:
            if run.pos != ROPE and (rope := ropes.get((run.seed, run.tokens))):
                pairs.setdefault((run.arm, rope.arm), {})[run.seed] = run, rope
    found = [_difference([by_seed[seed] for seed in sorted(by_seed)], losses) for by_seed in pairs.values()]
    return sorted(found, key=lambda one: [(run.tokens, run.pos, run.lr) for run in one.pairs[0]])


def _difference(pairs: Sequence[tuple[Result, Result]], losses: Mapping[Key, NDArray[np.float64]]) -> Difference:
    blocks = np.mean([losses[run.key] - losses[rope.key] for run, rope in pairs], axis=0)
    return Difference(tuple(pairs), float(blocks.mean()), float(blocks.std(ddof=1)) / math.sqrt(len(blocks)))
