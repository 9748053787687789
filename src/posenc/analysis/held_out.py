"""The claim map on the test split."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from posenc.analysis.claim_map import ARM, BASELINE, Point, advantage
from posenc.analysis.results import BlockRow, Result


@dataclass(frozen=True)
class HeldOut:
    """N(D) of the same runs on the whole test split, and on the windows of the last validation in training."""

    test: Point
    validation: Point


def held_out(
    backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], rows: Iterable[BlockRow]
) -> list[HeldOut]:
    """Those of the runs of one corpus that have a row, of the backbone or of one alternative with both arms.

    Args:
        rows: of test.csv.
    """
    losses = {row.key: statistics.fmean(row.losses) for row in rows}
    found = []
    for results in (backbone, *alternatives.values()):
        runs = [result for result in results if result.key in losses]
        on_test = [replace(run, val_loss=losses[run.key]) for run in runs]
        pairs = zip(advantage(on_test, ARM, BASELINE), advantage(runs, ARM, BASELINE), strict=True)
        found += [HeldOut(test, validation) for test, validation in pairs]
    return found
