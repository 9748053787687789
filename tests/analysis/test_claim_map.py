import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from posenc.analysis.claim_map import (
    Point,
    advantage,
    growth,
    off_plateau,
    tokens_to,
    trend,
    with_ratio,
)
from posenc.analysis.convergence import Estimate
from posenc.analysis.results import Result, read_results, table
from posenc.analysis.spread import losses_by_arm, pooled_sd, seeds_needed
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


def slope(points) -> Any:
    found = trend(points)
    return found and found.slope


def test_a_constant_advantage_in_tokens_is_found_at_every_budget():
    first, *points = advantage(backbone(), "rope", "sinusoidal")
    assert first.advantage.value == math.inf  # RoPE has that loss before its own smallest budget
    for point in points:
        assert point.advantage.value == pytest.approx(1.6)
        assert point.gap == pytest.approx(0.2 * math.log2(1.6))
    assert slope(points).value == pytest.approx(0, abs=1e-9)


def test_an_advantage_that_shrinks_has_a_negative_slope():
    runs = backbone()
    slower = [result("sinusoidal", r.tokens, r.seed, r.val_loss - 0.02 * math.log2(r.tokens / UNIT)) for r in runs[15:]]
    points = advantage(runs[:15] + slower, "rope", "sinusoidal")
    assert slope(points).value < -0.05
    assert slope(points).interval[1] < 0
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


def test_a_budget_at_which_one_seed_has_no_ratio_is_no_part_of_the_trend():
    runs = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    points = advantage(runs, "rope", "sinusoidal")
    assert points[2].by_seed[2] == math.inf
    assert trend(points) == trend([point for point in points if point.tokens != SLOW[2]])
    assert slope(points).seeds == 3


def test_a_seed_that_was_trained_on_fewer_budgets_counts_in_the_trend_with_those_it_has():
    """Seed 2 has no 16 units. With N = 2 there for seeds 0 and 1, b is that of a regression with an a for each seed."""
    runs = [run for run in backbone() if (run.seed, run.tokens) != (2, 16 * UNIT)]
    doubled = 0.2 * math.log2(2 / 1.6)
    runs = [replace(r, val_loss=r.val_loss + doubled * (r.tokens == 16 * UNIT and r.pos != "rope")) for r in runs]
    found = trend(advantage(runs, "rope", "sinusoidal"))
    assert found is not None
    values = [(seed, units, 2.0 if units == 16 else 1.6) for seed in range(3) for units in (2, 4, 8, 16)]
    kept = np.array([value for value in values if value[:2] != (2, 16)])
    design = np.column_stack([*(kept[:, 0] == seed for seed in range(3)), np.log(kept[:, 1])])
    *_, b = np.linalg.lstsq(design.astype(float), np.log(kept[:, 2]), rcond=None)[0]
    assert (found.values, found.slope.value) == (11, pytest.approx(b))
    residuals = np.log(kept[:, 2]) - design @ np.linalg.lstsq(design.astype(float), np.log(kept[:, 2]), rcond=None)[0]
    error = math.sqrt(residuals @ residuals / 7 * np.linalg.inv(design.T.astype(float) @ design)[3, 3])
    assert found.slope.interval == pytest.approx(
        (b - 2.364624 * error, b + 2.364624 * error)
    )  # t, 7 degrees of freedom


def test_a_line_through_values_of_n_that_rise_and_fall_does_not_fit():
    """F(1, 3) = 38.56 for the two residual sums of squares, computed apart by QR projections: p = 0.0084."""
    by_seed = {8: (1.6, 1.7, 1.75), 16: (1.85, 1.9, 1.9), 32: (1.7, 1.8)}
    points = [
        Point(units * UNIT, {}, Estimate(1.7, len(n)), dict(enumerate(n)), 9.0, 0.1, {}, plateau=False)
        for units, n in by_seed.items()
    ]
    found = trend(points)
    assert found is not None
    assert found.lack_of_fit == pytest.approx(0.0084175, rel=1e-4)
    straight = trend(
        [replace(p, by_seed={0: 1.6 + noise, 1: 1.7 - noise}) for p, noise in zip(points, (0, 0.1, 0), strict=True)]
    )
    assert straight is not None
    assert straight.lack_of_fit > 0.5


def test_budgets_without_a_common_seed_leave_the_line_its_degrees_of_freedom():
    """With two budgets a seed, each a doubling, the test is a one-way ANOVA of the rises of log N in the two groups."""
    by_seed = {
        8: {0: 1.6, 1: 1.7, 2: 1.75},
        16: {0: 1.85, 1: 1.9, 2: 1.9},
        32: {3: 1.7, 4: 1.8},
        64: {3: 1.7, 4: 1.85},
    }
    points = [
        Point(units * UNIT, {}, Estimate(1.7, len(n)), n, 9.0, 0.1, {}, plateau=False) for units, n in by_seed.items()
    ]
    rises = [[math.log(late[seed] / n) for seed, n in early.items()] for early, late in (
        (by_seed[8], by_seed[16]), (by_seed[32], by_seed[64])
    )]  # fmt: skip
    found = trend(points)
    assert found is not None
    assert found.lack_of_fit == pytest.approx(stats.f_oneway(*rises).pvalue)
    without_a_test = trend([*points[:2], replace(points[2], by_seed={3: 1.7})])
    assert without_a_test is not None
    assert math.isnan(without_a_test.lack_of_fit)


def test_a_seed_whose_arm_was_not_trained_as_long_as_the_baseline_has_no_n_there():
    runs = [run for run in backbone() if (run.pos, run.seed) != ("rope", 2) or run.tokens <= 8 * UNIT]
    point = advantage(runs, "rope", "sinusoidal")[-1]
    assert point.tokens == 16 * UNIT
    assert point.baseline_losses.keys() == point.by_seed.keys() == {0, 1}
    assert (point.advantage.value, point.advantage.missed, point.below) == (pytest.approx(1.6), 0, 1)


def test_the_trend_of_two_seeds_has_no_interval():
    assert slope(advantage(backbone(seeds=2), "rope", "sinusoidal")).interval is None


def test_two_budgets_are_no_trend():
    assert trend(advantage(backbone(budgets=(1, 2, 4, 8)), "rope", "sinusoidal")) is not None
    assert trend(advantage(backbone(budgets=(1, 2, 4)), "rope", "sinusoidal")) is None


def test_as_many_values_of_n_as_the_line_has_coefficients_are_no_trend():
    points = advantage(backbone(seeds=2, budgets=(1, 2, 4, 8)), "rope", "sinusoidal")
    apart = [replace(point, by_seed={seed: 1.6}) for point, seed in zip(points[1:], (0, 0, 1), strict=True)]
    assert trend(apart) is None


def test_a_gap_is_that_of_the_seeds_that_both_arms_have_at_a_budget():
    runs = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    runs = [run for run in runs if (run.pos, run.seed, run.tokens) != ("rope", *SLOW[1:])]
    point = advantage(runs, "rope", "sinusoidal")[2]
    assert point.baseline_losses.keys() == {0, 1, 2}
    assert point.arm_losses.keys() == {0, 1}
    assert point.gap == pytest.approx(0.2 * math.log2(1.6))


def test_a_loss_outside_the_budgets_of_an_arm_is_no_number():
    assert tokens_to({100: 2.0, 200: 1.5}, 2.5) == 0
    assert tokens_to({100: 2.0, 200: 1.5}, 1.0) == math.inf
    assert tokens_to({100: 2.0, 200: 1.5}, 2.0) == pytest.approx(100)
    assert tokens_to({100: 2.0, 400: 1.0}, 1.5) == pytest.approx(200)


def test_an_arm_that_never_gets_there_has_no_advantage():
    points = advantage(backbone(), "sinusoidal", "rope")
    assert points[-1].advantage.value == 0
    assert points[-1].advantage.missed == 3


def test_two_seeds_give_figures_and_no_interval():
    point = advantage(backbone(seeds=2), "rope", "sinusoidal")[-1]
    assert point.advantage.value == pytest.approx(1.6)
    assert point.advantage.interval is None


def test_a_baseline_on_the_plateau_of_the_bigram_model_is_marked():
    runs = [result(**vars_of(run), bigram_loss=2.0) for run in backbone()]
    points = advantage(runs, "rope", "sinusoidal")
    assert off_plateau(runs) == [run for run in runs if run.val_loss < 1.9]
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
    assert off_plateau(runs) == runs


def vars_of(run):
    return {"pos": run.pos, "tokens": run.tokens, "seed": run.seed}


def test_two_settings_of_one_budget_are_refused():
    with pytest.raises(UserError, match="rope, seed 0, 1,228,800 tokens appear twice"):
        advantage([*backbone(), result("rope", UNIT, lr=0.006)], "rope", "sinusoidal")


def test_the_pooled_sd_is_that_of_the_seeds_within_each_arm():
    sd, freedom = pooled_sd(losses_by_arm(backbone()))
    assert sd == pytest.approx(0.003)  # seeds 0, 1, 2 lie at 0, 0.003 and 0.006
    assert freedom == 2 * 5 * 2


def test_seeds_needed_is_the_first_number_whose_interval_is_narrow_enough():
    assert seeds_needed(0.01, 0.01) == 7  # Student's t with 6 degrees of freedom is 2.447, over sqrt(7) 0.925


def test_the_seeds_needed_for_a_large_sd_are_not_counted_one_by_one():
    seeds = seeds_needed(1e5, 0.01)
    assert seeds == pytest.approx((1.959964e5 / 0.01) ** 2, rel=1e-5)


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
