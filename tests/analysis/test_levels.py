"""The tokens that two arms need for the same loss."""

from dataclasses import replace

import pytest

from posenc.analysis.claim_map import advantage
from posenc.analysis.levels import level, levels_of_arm
from tests.analysis.test_claim_map import UNIT, backbone


def test_seen_from_the_arm_a_constant_advantage_is_the_same():
    for found in levels_of_arm(backbone(), "rope", "sinusoidal")[:-1]:
        assert (found.is_bound, found.ratio.value) == (False, pytest.approx(1.6))
    assert levels_of_arm(backbone(), "rope", "sinusoidal")[-1].is_bound  # 25.6 units of the sinusoid are not trained
    by_arm = level(backbone(), "rope", "sinusoidal", 1.5)
    assert by_arm is not None
    assert by_arm.ratio.value == pytest.approx(1.6)


def test_an_arm_that_does_not_reach_the_baseline_s_loss_has_a_ratio_below_1_seen_from_its_own_side():
    runs = [
        replace(run, val_loss=1.2) if run.pos == "sinusoidal" and run.tokens == 16 * UNIT else run for run in backbone()
    ]
    assert advantage(runs, "rope", "sinusoidal")[-1].advantage.value == 0
    last = levels_of_arm(runs, "rope", "sinusoidal")[-1]
    assert not last.is_bound
    assert 0.5 < last.ratio.value < 1


def test_a_loss_outside_the_budgets_gives_a_lower_bound_or_nothing():
    below_the_smallest = level(backbone(), "rope", "sinusoidal", 2.15)
    assert below_the_smallest is not None
    assert (below_the_smallest.is_bound, below_the_smallest.ratio.interval) == (True, None)
    assert below_the_smallest.ratio.value == pytest.approx(2 ** (0.053 / 0.2))  # to RoPE's smallest budget, with seed 1
    assert level(backbone(), "rope", "sinusoidal", 0.5) is None
    assert level(backbone(), "rope", "sinusoidal", 2.3) is None  # the sinusoid has that loss before its smallest budget
    assert level(backbone(), "rope", "sinusoidal", 2.204) is None  # so have two of its three seeds
    late = [run for run in backbone() if run.pos == "rope" or run.tokens > 8 * UNIT]
    assert len(levels_of_arm(late, "rope", "sinusoidal")) == 1  # only RoPE's last loss is below the sinusoid's first
    assert level([], "rope", "sinusoidal", 1.5) is None


def test_a_seed_that_was_not_trained_as_long_as_the_others_is_no_bound():
    runs = [run for run in backbone() if run.seed < 2 or run.tokens <= 8 * UNIT]
    found = {len(one.losses): one for one in levels_of_arm(runs, "rope", "sinusoidal")[:-1]}
    assert found[3].losses.keys() == {0, 1, 2}
    assert found[2].losses.keys() == {0, 1}  # at 8 units the sinusoid needs 12.8, which seed 2 has not
    assert found[2].ratio.value == pytest.approx(1.6)
    assert not found[2].is_bound
