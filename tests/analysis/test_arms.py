"""One scheme's curves, levels and speed, over its seeds."""

import math
from dataclasses import replace

import numpy as np
import pytest

from posenc.analysis.arms import LEVELS, Arm, build_arm
from posenc.analysis.convergence import level_at
from tests.analysis.synthetic import run

BUDGET = 300


def measured(seed, steps, loss=None, **columns):
    """A run with a validation at each of some steps, a step a second; its loss is 4 - step / 100 by default."""
    steps = np.array(steps, float)
    loss = 4 - steps / 100 if loss is None else np.array(loss, float)
    nan = np.full_like(steps, math.nan)
    curve = {"step": steps, "tokens": steps * 4096, "seconds": steps, "val_loss": loss, "induction": nan, **columns}
    return replace(run("rope", seed), curve={"previous_token": nan, **curve})


def test_curves_are_means_over_seeds_at_the_steps_that_all_have():
    slow = np.array([20.0, 30.0, 40.0]) * 3
    one, other = measured(0, [10, 20, 30]), measured(1, [20, 30, 40], [2, 1, 1], seconds=slow)
    bands = Arm("rope", (one, other)).bands["val_loss"]
    assert bands["step"].x.tolist() == [20, 30]
    assert bands["step"].middle.tolist() == pytest.approx([(3.8 + 2) / 2, (3.7 + 1) / 2])
    assert bands["seconds"].x.tolist() == [40, 60]
    assert bands["seconds"].middle.tolist() == bands["step"].middle.tolist()


def test_a_score_that_one_seed_has_not_measured_has_no_mean_there_and_is_a_share():
    scores = [np.array([math.nan, low, 0.5]) for low in (0.0, 0.0, 0.9)]
    runs = [measured(seed, [10, 20, 30], previous_token=score) for seed, score in enumerate(scores)]
    runs[0].curve["previous_token"][2] = math.nan
    band = Arm("rope", tuple(runs)).bands["previous_token"]["step"]
    assert band.x.tolist() == [20]
    assert (band.low[0], band.high[0]) == (0, 1)  # without bounds -0.99 and 1.59


def test_the_speed_of_an_arm_is_the_median_of_its_runs():
    runs = [replace(run("rope", 0), summary={"tokens_per_s": speed}) for speed in (100, 200, 900)]
    assert Arm("rope", tuple(runs)).tokens_per_s == 200


def test_bits_are_unknown_where_one_run_has_none():
    one, other = run("rope", 0), replace(run("rope", 1), summary={})
    assert Arm("rope", (one,)).bits is not None
    assert Arm("rope", (one, other)).bits is None
    nothing_left = replace(one, summary={**one.summary, "val_loss": 0.0, "bits_per_byte": 0.0})
    assert Arm("rope", (nothing_left,)).bits is None


def test_a_level_is_the_mean_of_the_baseline_s_losses_of_which_each_seed_has_its_own():
    baseline = [
        measured(seed, [100, 200, 300], [3 + apart, 2 + apart, 1 + apart]) for seed, apart in enumerate((0, 0.3, 0.9))
    ]
    arm = build_arm("rope", baseline, baseline, BUDGET, 0)
    quarter = arm.thresholds[1]
    assert quarter.fraction == 0.5
    assert quarter.level == pytest.approx(2.5 + 0.4)
    assert (quarter.steps.value, quarter.in_steps.value) == (pytest.approx(150), pytest.approx(1))


def test_the_headline_is_at_the_lowest_loss_that_both_reach_seed_by_seed():
    baseline = [measured(0, [100, 200, 300], [3, 2, 1]), measured(1, [100, 200, 300], [3, 2, 1.8])]
    scheme = [measured(0, [100, 200, 300], [2.5, 2, 1.5]), measured(1, [100, 200, 300], [2.5, 2, 1.5])]
    headline = build_arm("other", scheme, baseline, BUDGET, 0).headline
    assert headline is not None
    assert headline.level == pytest.approx((1.5 + 1.8) / 2)


def test_speed_ups_are_drawn_from_a_tenth_of_the_budget_to_the_lowest_loss_that_every_seed_of_the_baseline_has():
    baseline = [run("sinusoidal", seed, pace=pace) for seed, pace in enumerate((1.0, 1.1, 1.3))]
    scheme = [run("rope", seed, pace=2 * pace) for seed, pace in enumerate((1.0, 1.1, 1.3))]
    drawn = build_arm("rope", scheme, baseline, BUDGET, 0).speed_ups
    assert drawn is not None
    start = np.mean([level_at(one.curve["step"], one.curve["val_loss"], BUDGET / 10) for one in baseline])
    assert drawn.x[0] == pytest.approx(start)
    assert drawn.x[-1] == max(one.last_loss for one in baseline)
    assert len(drawn.x) > 0.8 * LEVELS
    assert drawn.middle == pytest.approx(2, rel=0.1)


def test_speed_ups_end_where_a_seed_of_the_scheme_does_not_arrive():
    baseline = [run("sinusoidal", seed) for seed in range(3)]
    scheme = [run("rope", seed, pace=pace) for seed, pace in enumerate((2, 2, 0.5))]
    drawn = build_arm("rope", scheme, baseline, BUDGET, 0).speed_ups
    assert drawn is not None
    assert min(drawn.x) >= scheme[2].last_loss
    assert drawn.middle.min() > 0


def test_a_scheme_that_lost_runs_is_still_called_slower():
    baseline = [run("sinusoidal", seed) for seed in range(3)]
    scheme = [run("rope", seed, pace=0.5) for seed in range(3)]
    assert build_arm("rope", scheme, baseline, BUDGET, diverged=1).verdict == "slower"


def test_a_scheme_is_not_called_slower_than_a_baseline_that_lost_runs():
    baseline = [run("sinusoidal", seed) for seed in range(3)]
    slow, fast = ([run("rope", seed, pace=pace) for seed in range(3)] for pace in (0.5, 2))
    assert build_arm("rope", slow, baseline, BUDGET, 0, baseline_diverged=1).verdict == "undecided"
    assert build_arm("rope", fast, baseline, BUDGET, 0, baseline_diverged=1).verdict == "faster"


def test_the_band_of_a_loss_is_not_clipped_to_1_like_that_of_a_share():
    runs = [measured(seed, [10], [loss]) for seed, loss in enumerate((2.0, 2.0, 2.9))]
    band = Arm("rope", tuple(runs)).bands["val_loss"]["step"]
    assert (band.low[0], band.high[0]) == pytest.approx((2.3 - 1.290794, 2.3 + 1.290794), abs=1e-5)
