"""The committed results of the claim map, and the pages that state them."""

import functools
from collections.abc import Iterable, Mapping, Sequence

from scipy import stats

from posenc.analysis.claim_map import Point, advantage
from posenc.analysis.convergence import Estimate
from posenc.analysis.corpus_map import backbone_of
from posenc.analysis.held_out import held_out
from posenc.analysis.results import BlockRow, CopyingRow, RemovedHeadRow, Result
from posenc.analysis.study import Study
from posenc.report import formatting
from posenc.storage.csv_files import read_rows
from tests.conftest import ROOT

FOLDER = ROOT / "results/claim-map"
STUDY = Study(FOLDER)
CORPUS = STUDY.corpora[0]
LONGEST = 78_643_200
COPIED = read_rows(FOLDER / "copying.csv", CopyingRow)
README, COPYING, CLAIMS, *_RESULTS = (
    " ".join((ROOT / page).read_text().split())
    for page in (
        "README.md",
        "docs/copying.md",
        "docs/claims.md",
        "docs/results.md",
        "docs/tuning.md",
        "docs/models.md",
    )
)
RESULTS = " ".join(_RESULTS)
"""Three pages in one."""


def listed(values: Iterable[float], digits: int) -> str:
    """0.029 and 0.031; 3.5, 2.4 and 1.8."""
    *others, last = (f"{value:.{digits}f}" for value in values)
    return f"{', '.join(others)} and {last}" if others else last


def with_bounds(estimate: Estimate | None, unit: str = "") -> str:
    """0.086 (0.070 to 0.102), with a unit after the mean."""
    assert estimate is not None
    return f"{estimate.value:.3f}{unit}{formatting.bounds(estimate, '{:.3f}'.format)}"


FORMER = "settings tuned at 4.9M tokens"
"""Of both arms at budgets that were tuned later."""


@functools.cache
def found(corpus: str) -> tuple[Sequence[Result], Mapping[str, Sequence[Result]]]:
    """The backbone and its alternatives."""
    return backbone_of(STUDY, corpus)


def at_settings_of_4_9m(pos: Iterable[str] = ("rope", "sinusoidal")) -> list[Result]:
    """The backbone, with the settings tuned at 4.9M tokens where it has others and these were run too."""
    backbone, alternatives = found(CORPUS)
    former = [run for run in alternatives[FORMER] if run.pos in pos]
    replaced = {(run.pos, run.tokens) for run in former}
    return [*(run for run in backbone if (run.pos, run.tokens) not in replaced), *former]


def at(tokens: int, runs: Iterable[Result]) -> Point:
    """N of RoPE over the sinusoid at one budget."""
    (point,) = (point for point in advantage([*runs], "rope", "sinusoidal") if point.tokens == tokens)
    return point


@functools.cache
def evaluated() -> Mapping[str, Sequence[tuple[Point, Point]]]:
    """N on the test split and on validation, by replication."""
    return held_out(*found(CORPUS), STUDY.rows("test.csv", BlockRow, CORPUS))


def p_of(differences: Iterable[float]) -> float:
    """Of a paired, two-sided t-test."""
    return float(stats.ttest_1samp([*differences], 0).pvalue)


def cells(values: Iterable[float], form: str) -> str:
    """By seed, as in a table."""
    return ", ".join(format(value, form) for value in values)


def copied(rows: Iterable[CopyingRow | RemovedHeadRow]) -> str:
    """Second minus first occurrence, by seed, as in a table."""
    return cells((row.second - row.first for row in rows), ".2f")
