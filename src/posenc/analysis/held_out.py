"""The claim map on the test split."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from posenc.analysis.claim_map import ROPE, SINUSOID, Point, advantage
from posenc.analysis.results import BlockRow, Result
from posenc.analysis.run_key import BACKBONE


def held_out(
    backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], rows: Iterable[BlockRow]
) -> dict[str, list[tuple[Point, Point]]]:
    """N(D) of the same runs on the whole test split, and on the windows of the last validation in training.

    By the name of the alternative, "backbone" for none, if it has runs there.

    Args:
        backbone, alternatives: the runs of one corpus; an alternative counts if it has both arms.
        rows: of test.csv; runs without one are left out.
    """
    losses = {row.key: statistics.fmean(row.losses) for row in rows}
    found: dict[str, list[tuple[Point, Point]]] = {}
    for name, results in {BACKBONE: backbone, **alternatives}.items():
        runs = [result for result in results if result.key in losses]
        on_test = [replace(run, val_loss=losses[run.key]) for run in runs]
        found[name] = list(zip(advantage(on_test, ROPE, SINUSOID), advantage(runs, ROPE, SINUSOID), strict=True))
    return {name: points for name, points in found.items() if points}
