"""The claim map on the test split."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from posenc.analysis.claim_map import ARM, BASELINE, Point, advantage
from posenc.analysis.results import BlockRow, Result


def held_out(
    backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], rows: Iterable[BlockRow]
) -> list[tuple[Point, Point]]:
    """N(D) of the same runs on the whole test split, and on the windows of the last validation in training.

    Args:
        backbone, alternatives: the runs of one corpus; an alternative counts if it has both arms.
        rows: of test.csv; runs without one are left out.
    """
    losses = {row.key: statistics.fmean(row.losses) for row in rows}
    found: list[tuple[Point, Point]] = []
    for results in (backbone, *alternatives.values()):
        runs = [result for result in results if result.key in losses]
        on_test = [replace(run, val_loss=losses[run.key]) for run in runs]
        found += zip(advantage(on_test, ARM, BASELINE), advantage(runs, ARM, BASELINE), strict=True)
    return found
