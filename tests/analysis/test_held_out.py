"""N on the test split."""

import pytest

from posenc.analysis.held_out import held_out
from posenc.analysis.results import BlockRow, Result
from tests.analysis.test_claim_map import UNIT, backbone, result


def evaluated(run: Result, harder: float = 0.0) -> BlockRow:
    """A run's losses on the two blocks of a test split, which is that much harder for it than validation."""
    return BlockRow(*run.key, [run.val_loss + harder - 0.3, run.val_loss + harder + 0.3])


def test_a_test_split_that_is_harder_for_the_baseline_has_a_larger_n():
    """A step of 0.2 nats is a doubling of the budget, by which RoPE's advantage of 1.6 grows."""
    runs = backbone(budgets=(1, 2, 4, 8))
    found = held_out(runs, {}, [evaluated(run, 0.5 + 0.2 * (run.pos == "sinusoidal")) for run in runs])
    assert list(found) == ["backbone"]
    test, validation = found["backbone"][-1]
    assert validation.advantage.value == pytest.approx(1.6)
    assert test.advantage.value == pytest.approx(3.2)
    assert test.loss == pytest.approx(validation.loss + 0.7)


def test_both_columns_are_of_the_runs_that_were_evaluated():
    runs = backbone(budgets=(2, 4, 8))
    measured = [run for run in runs if run.seed < 2 and (run.pos == "rope" or run.tokens == 8 * UNIT)]
    (((test, validation),),) = held_out(runs, {}, map(evaluated, measured)).values()
    assert test.tokens == 8 * UNIT
    assert set(test.by_seed) == set(validation.by_seed) == {0, 1}


def test_a_replication_is_compared_with_itself_and_one_arm_alone_with_nothing():
    both = [result(pos, UNIT * units, seed=3) for pos in ("rope", "sinusoidal") for units in (2, 4)]
    alone = [run for run in both if run.pos == "rope"]
    found = held_out(backbone(), {"replication": both, "rope, replication": alone}, map(evaluated, both))
    assert list(found) == ["replication"]
    assert [(test.tokens // UNIT, set(test.by_seed)) for test, _ in found["replication"]] == [(2, {3}), (4, {3})]
