"""Validation's own error in a difference."""

from dataclasses import replace

import pytest

from posenc.analysis.results import BlockRow, Result
from posenc.analysis.validation_error import differences
from posenc.errors import UserError
from tests.analysis.test_claim_map import UNIT, backbone, result

TEXT = [1.0, 2.0, 1.5, 1.1, 1.9, 1.4]
"""The losses of blocks that are easier and harder for every model."""


def blocks(run: Result, *above: float) -> BlockRow:
    """A run's losses, so much above those of the text."""
    return BlockRow(*run.key, [loss + more for loss, more in zip(TEXT, above or [0.0] * len(TEXT), strict=True)])


def test_what_is_common_to_both_runs_is_no_error_of_their_difference():
    rope, sinusoidal = backbone(seeds=1, budgets=[4])
    (found,) = differences([rope, sinusoidal], {}, [blocks(rope), blocks(sinusoidal, *[0.3, 0.1] * 3)])
    assert found.value == pytest.approx(0.2)
    assert found.se == pytest.approx(0.1 * (6 / 5) ** 0.5 / 6**0.5)
    assert not found.precise
    (found,) = differences([rope, sinusoidal], {}, [blocks(rope), blocks(sinusoidal, *[0.26, 0.14] * 3)])
    assert found.value / 10 < found.se < found.value / 5
    assert not found.precise
    (found,) = differences([rope, sinusoidal], {}, [blocks(rope), blocks(sinusoidal, *[0.21, 0.19] * 3)])
    assert found.precise
    assert found.reported == pytest.approx(sinusoidal.val_loss - rope.val_loss)


def test_the_error_of_a_mean_over_seeds_is_that_of_the_blocks_and_not_of_the_seeds():
    ropes, sinusoids = backbone(seeds=2, budgets=[4])[:2], backbone(seeds=2, budgets=[4])[2:]
    opposite = ([0.4, 0.0] * 3, [0.2, 0.6] * 3)
    measured = [*map(blocks, ropes), *(blocks(run, *above) for run, above in zip(sinusoids, opposite, strict=True))]
    (found,) = differences([*ropes, *sinusoids], {}, measured)
    assert [(own.seed, arm.seed) for own, arm in found.pairs] == [(0, 0), (1, 1)]
    assert found.value == pytest.approx(0.3)
    assert found.se == pytest.approx(0, abs=1e-9)


def test_only_runs_of_one_seed_and_budget_that_were_both_measured_are_compared():
    runs = backbone(seeds=2, budgets=[4, 8])
    measured = [run for run in runs if run.seed == 0 or run.pos == "sinusoidal" and run.tokens == 4 * UNIT]
    found = differences(runs, {}, map(blocks, measured))
    assert [[run.seed for run, _ in one.pairs] for one in found] == [[0], [0]]
    assert [one.pairs[0][1].tokens for one in found] == [4 * UNIT, 8 * UNIT]


def test_an_alternative_of_either_arm_has_its_own_row():
    runs = backbone(seeds=1, budgets=[4])
    slow = {f"{pos}, slow": [result(pos, 4 * UNIT, lr=0.001)] for pos in ("rope", "sinusoidal")}
    found = differences(runs, slow, map(blocks, [*runs, *slow["rope, slow"], *slow["sinusoidal, slow"]]))
    rates = [(own.lr, arm.lr) for one in found for own, arm in one.pairs]
    assert rates == [(0.001, 0.003), (0.003, 0.001), (0.003, 0.003)]


def test_runs_with_different_numbers_of_blocks_are_refused():
    rope, sinusoidal = backbone(seeds=1, budgets=[4])
    with pytest.raises(UserError, match="different numbers of blocks"):
        differences([rope, sinusoidal], {}, [blocks(rope), replace(blocks(sinusoidal), losses=TEXT[1:])])


def test_a_scheme_below_rope_may_be_precise_too():
    rope, sinusoidal = backbone(seeds=1, budgets=[4])
    (found,) = differences([rope, sinusoidal], {}, [blocks(rope), blocks(sinusoidal, *[-0.21, -0.19] * 3)])
    assert found.value == pytest.approx(-0.2)
    assert found.precise


def test_differences_are_by_rising_budget():
    runs = backbone(seeds=1, budgets=[4, 8])
    t5 = [replace(run, pos="t5") for run in runs if run.pos == "sinusoidal"]
    firsts = [one.pairs[0][0] for one in differences([*runs, *t5], {}, map(blocks, [*runs, *t5]))]
    order = [(4, "sinusoidal"), (4, "t5"), (8, "sinusoidal"), (8, "t5")]
    assert [(first.tokens // UNIT, first.pos) for first in firsts] == order
