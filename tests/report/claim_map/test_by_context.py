"""What the figure of the arms' difference by context draws."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from posenc.analysis.results import CopyingRow, Result
from posenc.report.claim_map.by_context import by_context
from tests.analysis.test_claim_map import UNIT, backbone

RUNS = [run for run in backbone() if run.tokens in (8 * UNIT, 16 * UNIT)]
SEEDS = sorted({run.seed for run in RUNS})


def measured(run: Result) -> CopyingRow:
    """RoPE is 0.1 ahead in novel contexts, 0.2 behind in repeated ones, both minus its seed in hundredths."""
    new, seen = (1.0 + (run.pos == "rope") * (gap + run.seed / 100) for gap in (-0.1, 0.2))
    return CopyingRow(*run.key, first=1.0, second=1.0, new=new, seen=seen, share=0.2, own=1.0, foreign=1.0)


@pytest.mark.parametrize(
    ("panel", "gap", "title"), [(0, -0.1, "novel contexts (80% of the targets)"), (1, 0.2, "repeated contexts (20%)")]
)
def test_a_panel_has_the_difference_of_every_pair_and_their_means(panel, gap, title):
    figure: Any = by_context(RUNS, map(measured, RUNS))
    axes = figure.axes[panel]
    _, means, *of_budgets = axes.lines
    differences = [gap + seed / 100 for seed in SEEDS]
    assert means.get_ydata() == pytest.approx([fmean(differences)] * 2)
    assert len(of_budgets) == 2
    assert all(dots.get_ydata() == pytest.approx(differences) for dots in of_budgets)
    assert axes.get_title(loc="left") == title


def test_a_run_without_a_partner_is_left_out_and_one_budget_is_not_drawn():
    alone = replace(RUNS[0], seed=9)
    figure: Any = by_context([*RUNS, alone], map(measured, [*RUNS, alone]))
    assert [len(dots.get_ydata()) for dots in figure.axes[0].lines[2:]] == [len(SEEDS)] * 2
    assert by_context(RUNS, [measured(run) for run in RUNS if run.tokens == 8 * UNIT]) is None
