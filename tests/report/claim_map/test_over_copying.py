"""What the figure of the longest runs' final losses over what they copy draws."""

from dataclasses import replace
from typing import Any

from posenc.analysis.results import CopyingRow, Result
from posenc.analysis.run_key import SEARCH
from posenc.report.claim_map.over_copying import MARKERS, over_copying
from tests.analysis.test_claim_map import UNIT, backbone

RUNS = [replace(run, base="1000" if run.pos == "rope" else "") for run in backbone()]
BUDGETS = (8 * UNIT, 16 * UNIT)


def copied(run: Result, gain: float) -> CopyingRow:
    """A row of copying.csv of a run whose loss a second occurrence lowers by so much."""
    return CopyingRow(*run.key, first=2.0, second=2.0 - gain, new=2.0, seen=2.0, share=0.2, own=2.0, foreign=2.0)


def dots(figure: Any) -> dict[tuple[float, float], str]:
    """The colour of each dot, by what its run copies and its loss minus the baseline's."""
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    return {(round(line.get_xdata()[0], 6), round(line.get_ydata()[0], 6)): line.get_color() for line in lines}


def test_every_run_of_a_budget_is_compared_with_the_lowest_of_the_baseline_s_with_its_seed():
    lower = [replace(run, setting=SEARCH, lr=0.1, val_loss=run.val_loss - 0.05) for run in RUNS
             if (run.pos, run.seed) == ("sinusoidal", 1)]  # fmt: skip
    gains = {run: run.seed / 10 + run.tokens / UNIT / 1000 for run in RUNS}
    drawn = dots(over_copying([*RUNS, *lower], [copied(run, gain) for run, gain in gains.items()], BUDGETS))
    own = [run for run in RUNS if run.pos == "rope" and run.tokens in BUDGETS]
    loss = {(run.pos, run.tokens, run.seed): run.val_loss - 0.05 * (run.seed == 1) for run in RUNS}
    behind = {run: run.val_loss - loss["sinusoidal", run.tokens, run.seed] for run in own}
    assert drawn.keys() == {(round(gains[run], 6), round(behind[run], 6)) for run in own}


def test_a_run_that_was_not_measured_or_has_another_setting_is_left_out():
    rope, *_ = (run for run in RUNS if run.pos == "rope" and run.tokens == BUDGETS[0])
    changed, alone = replace(rope, setting="context=64"), replace(rope, seed=9)
    assert over_copying([*RUNS, changed, alone], [copied(run, 0.1) for run in (changed, alone)], BUDGETS) is None
    assert len(dots(over_copying(RUNS, [copied(rope, 0.1)], BUDGETS))) == 1


def test_a_larger_base_is_darker_and_each_scheme_has_its_name():
    rope, *_ = (run for run in RUNS if run.pos == "rope" and run.tokens == BUDGETS[0])
    others = [replace(rope, base="1000000", lr=0.1), replace(rope, pos="t5", base="")]
    rows = [copied(run, gain) for run, gain in zip((rope, *others), (0.1, 0.2, 0.3), strict=True)]
    figure = over_copying([*RUNS, *others], rows, BUDGETS)
    red = {gain: colour for (gain, _), colour in dots(figure).items()}
    assert sum(bytes.fromhex(red[0.1][1:])) > sum(bytes.fromhex(red[0.2][1:]))
    assert figure is not None
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["RoPE, base 1,000", "RoPE, base 1,000,000", "T5", f"{BUDGETS[0] / 1e6:.1f}M tokens"]


def test_there_may_be_more_budgets_than_markers():
    rope, baseline = (next(run for run in RUNS if run.pos == pos) for pos in ("rope", "sinusoidal"))
    budgets = range(1, len(MARKERS) + 2)
    runs = [replace(run, tokens=tokens) for run in (rope, baseline) for tokens in budgets]
    drawn = over_copying(runs, [copied(run, run.tokens / 100) for run in runs], budgets)
    assert len(dots(drawn)) == len(budgets)
