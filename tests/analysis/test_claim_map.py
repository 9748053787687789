import math
from dataclasses import replace

import pytest

from posenc.analysis.claim_map import (
    advantage,
    growth,
    tokens_to,
    with_ratio,
)
from posenc.analysis.results import Result, read_results, table
from posenc.errors import UserError

UNIT = 1_228_800
FASTER = {"rope": 1.6, "sinusoidal": 1.0}
SLOW = ("sinusoidal", 2, 4 * UNIT)
"""A run that is made to end above the loss that RoPE has after one unit."""


def result(pos, tokens, seed=0, loss=None, **other):
    """A run whose loss falls linearly in log D, sooner for RoPE by a factor that is the same at every budget."""
    law = 2.2 - 0.2 * math.log2(tokens / UNIT * FASTER[pos]) + 0.003 * seed
    values = {"lr": 0.003, "scale": "", "base": "", "val_loss_se": 0.01, "bigram_loss": 2.6, **other}
    values |= {"commit": "abc", "hardware": "CPU"}
    return Result("wiki", "backbone", pos, seed, tokens, val_loss=law if loss is None else loss, **values)


def backbone(seeds=3, budgets=(1, 2, 4, 8, 16)):
    return [result(pos, UNIT * units, seed) for pos in FASTER for units in budgets for seed in range(seeds)]


def test_a_constant_advantage_in_tokens_is_found_at_every_budget():
    first, *points = advantage(backbone(), "rope", "sinusoidal")
    assert first.advantage.value == math.inf  # RoPE has that loss before its own smallest budget
    for point in points:
        assert point.advantage.value == pytest.approx(1.6)
        assert point.gap is not None
        assert point.gap.value == pytest.approx(0.2 * math.log2(1.6))


def test_an_advantage_that_shrinks_changes_by_a_factor_below_1():
    runs = backbone()
    slower = [result("sinusoidal", r.tokens, r.seed, r.val_loss - 0.02 * math.log2(r.tokens / UNIT)) for r in runs[15:]]
    points = advantage(runs[:15] + slower, "rope", "sinusoidal")
    last = growth(points)
    assert last is not None
    before, after, ratio = last
    assert (before, after) == (8 * UNIT, 16 * UNIT)
    assert ratio.value == pytest.approx(points[4].advantage.value / points[3].advantage.value)
    assert ratio.value < 1


def test_budgets_without_a_common_seed_have_no_growth():
    """The baseline has seeds 0 and 1 at 8 units, 2 at 16."""
    left_out = {(8, 2), (16, 0), (16, 1)}
    runs = [run for run in backbone() if run.pos == "rope" or (run.tokens // UNIT, run.seed) not in left_out]
    assert (
        growth(advantage([run for run in runs if run.tokens >= 8 * UNIT or run.pos == "rope"], "rope", "sinusoidal"))
        is None
    )


def test_a_seed_whose_arm_was_not_trained_as_long_as_the_baseline_has_no_n_there():
    runs = [run for run in backbone() if (run.pos, run.seed) != ("rope", 2) or run.tokens <= 8 * UNIT]
    point = advantage(runs, "rope", "sinusoidal")[-1]
    assert point.tokens == 16 * UNIT
    assert point.baseline_losses.keys() == point.by_seed.keys() == {0, 1}
    assert (point.advantage.value, point.advantage.missed, point.below) == (pytest.approx(1.6), 0, 1)


def test_a_gap_is_that_of_the_seeds_that_both_arms_have_at_a_budget():
    runs = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    runs = [run for run in runs if (run.pos, run.seed, run.tokens) != ("rope", *SLOW[1:])]
    point = advantage(runs, "rope", "sinusoidal")[2]
    assert point.baseline_losses.keys() == {0, 1, 2}
    assert point.arm_losses.keys() == {0, 1}
    assert point.gap is not None
    assert (point.gap.value, point.gap.interval) == (pytest.approx(0.2 * math.log2(1.6)), None)


def test_a_loss_outside_the_budgets_of_an_arm_is_no_number():
    assert tokens_to({100: 2.0, 200: 1.5}, 2.5) == 0
    assert tokens_to({100: 2.0, 200: 1.5}, 1.0) == math.inf
    assert tokens_to({100: 2.0, 200: 1.5}, 2.0) == pytest.approx(100)
    assert tokens_to({100: 2.0, 400: 1.0}, 1.5) == pytest.approx(200)


def test_an_arm_that_never_gets_there_has_no_advantage():
    points = advantage(backbone(), "sinusoidal", "rope")
    assert points[-1].advantage.value == 0
    assert points[-1].advantage.missed == 3


def test_a_baseline_on_the_plateau_of_the_bigram_model_is_marked():
    runs = [result(**vars_of(run), bigram_loss=2.0) for run in backbone()]
    points = advantage(runs, "rope", "sinusoidal")
    assert [point.plateau for point in points] == [True, True, False, False, False]
    assert with_ratio(points) == list(points[2:])


def test_one_seed_on_the_plateau_marks_the_budget():
    runs = [replace(run, val_loss=2.55) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    assert [point.plateau for point in advantage(runs, "rope", "sinusoidal")] == [False, False, True, False, False]


def test_the_bounds_of_n_are_those_of_the_budgets_that_every_seed_has():
    """RoPE was trained on 1 to 16 units, with seed 1 on 2 to 8."""
    runs = [
        run for run in backbone(seeds=2) if run.seed == 0 or 2 * UNIT <= run.tokens <= 8 * UNIT or run.pos != "rope"
    ]
    (point,) = (one for one in advantage(runs, "rope", "sinusoidal") if one.tokens == 4 * UNIT)
    assert (point.above, point.below) == (4 / 2, 4 / 8)


def test_where_the_bigram_model_is_unknown_nothing_is_on_its_plateau():
    runs = [replace(run, bigram_loss=math.nan) for run in backbone()]
    assert not any(point.plateau for point in advantage(runs, "rope", "sinusoidal"))


def vars_of(run):
    return {"pos": run.pos, "tokens": run.tokens, "seed": run.seed}


def test_two_settings_of_one_budget_are_refused():
    with pytest.raises(UserError, match="rope, seed 0, 1,228,800 tokens appear twice"):
        advantage([*backbone(), result("rope", UNIT, lr=0.006)], "rope", "sinusoidal")


def test_results_are_read_as_they_were_written(tmp_path):
    (tmp_path / "runs.csv").write_text(table(Result, backbone()))
    assert read_results(tmp_path / "runs.csv") == tuple(backbone())
    (tmp_path / "runs.csv").write_text(f"{table(Result, [])}wiki,backbone,rope,x,1,1,,,1,1,1,abc,CPU\n")
    with pytest.raises(UserError, match=r"runs.csv, row 1, column seed cannot be read"):
        read_results(tmp_path / "runs.csv")
    (tmp_path / "runs.csv").write_text(table(Result, [*backbone()[:2], backbone()[1]]))
    with pytest.raises(UserError, match=r"runs.csv, row 3 repeats the run of an earlier row"):
        read_results(tmp_path / "runs.csv")


@pytest.mark.parametrize("loss", [-0.1, 1e6, math.nan, math.inf])
def test_an_invalid_loss_is_refused(loss, tmp_path):
    (tmp_path / "runs.csv").write_text(table(Result, [replace(backbone()[0], val_loss=loss)]))
    with pytest.raises(UserError, match=r"runs.csv, row 1, column val_loss cannot be read"):
        read_results(tmp_path / "runs.csv")


def test_growth_leaves_out_budgets_on_the_plateau():
    points = advantage([replace(run, bigram_loss=2.0) for run in backbone()], "rope", "sinusoidal")
    assert [point.plateau for point in points[:3]] == [True, True, False]
    assert growth(points[:3]) is None


def test_the_plateau_is_that_of_the_baseline_s_own_runs():
    runs = [replace(run, bigram_loss=2.0 if run.pos == "sinusoidal" else math.nan) for run in reversed(backbone())]
    points = advantage(runs, "rope", "sinusoidal")
    assert [point.plateau for point in points] == [True, True, False, False, False]
