"""Longer windows over seeds."""

import math

import numpy as np
import pytest

from posenc.analysis.arms import Arm
from posenc.analysis.comparison import compare
from posenc.analysis.extrapolation import extrapolation
from posenc.report import csv_tables, sentences
from tests.analysis.synthetic import run, sweep, with_lengths


def comparison(*, slopes=(0.1, 0.2, 0.3)):
    """The bits of rope rise by its slope a doubling; the learned table ends at the training length."""
    rope = [with_lengths(run("rope", seed), slope) for seed, slope in enumerate(slopes)]
    learned = [with_lengths(run("learned", seed), 0.0, rows=256) for seed in range(len(slopes))]
    return compare(sweep(*rope, *learned), "learned")


def longer(**made):
    (panel,) = comparison(**made).panels
    assert panel.extrapolation is not None
    return panel.extrapolation


def row(scheme):
    return next(row for row in longer().rows if row.scheme == scheme)


def test_bits_are_means_over_seeds_and_changes_are_paired():
    rope = row("rope")
    assert rope.bits[4.0].value == pytest.approx(2 + 2 * 0.2)
    assert rope.change[8.0].value == pytest.approx(3 * 0.2)
    assert rope.change[1.0].value == 0
    margin = 4.3027 * 0.1 / np.sqrt(3)  # Student's, 2 degrees
    assert rope.change[2.0].interval == pytest.approx((0.2 - margin, 0.2 + margin), abs=1e-4)


def test_what_has_no_entry_is_never_a_number():
    learned = row("learned")
    assert list(learned.bits) == list(learned.change) == [1.0]
    gap = "Not evaluated: learned at 1.25x, 1.5x, 2x, 4x, 8x: it supports only 256 positions"
    assert sentences.gaps(longer()) == [gap]
    assert list(learned.by_length.x) == [1.0]
    assert max(learned.by_position.x) < 256


@pytest.mark.parametrize(
    ("slopes", "change"),
    [
        ((0.19, 0.2, 0.21), "0.200 bits more (0.175 to 0.225) with rope"),
        ((-0.19, -0.2, -0.21), "0.200 bits less (0.175 to 0.225) with rope"),
        ((-0.1, 0.0, 0.4), "0.100 bits more (-0.557 to +0.757, perhaps no change) with rope"),
        ((0.3,), "0.300 bits more with rope"),
        ((-0.0001, 0.0, 0.0001), "the same to within 0.001 bits with rope"),
        ((-0.0001,), "the same to within 0.001 bits with rope"),
    ],
)
def test_the_sentence_follows_from_the_interval(slopes, change):
    said = sentences.extrapolation(longer(slopes=slopes))
    without = "learned was not evaluated (it supports only 256 positions)."
    assert said == f"In windows of 512 tokens, twice the training length, a byte costs {change}; {without}"


def test_positions_rise_from_the_first_to_the_last_and_none_comes_twice():
    band = row("rope").by_position
    assert list(band.x) == sorted(set(band.x))
    assert band.x[0] == 1
    assert 1500 < band.x[-1] < 2048


def test_a_bucket_of_positions_is_at_its_geometric_mean_with_the_loss_of_windows_of_the_training_length():
    band = row("rope").by_position
    assert band.x[:3].tolist() == pytest.approx([1, math.sqrt(2 * 4), math.sqrt(5 * 16)])
    assert band.middle[0] == pytest.approx(2 * math.log(2) + 1)  # 2 bits at the training length, and 2.6 at 8 times


def test_a_length_at_which_one_seed_has_no_entry_has_no_mean():
    rope = [with_lengths(run("rope", seed), 0.1, rows) for seed, rows in enumerate((None, 400))]
    found = extrapolation([Arm("rope", tuple(rope))])
    assert found is not None
    assert list(found.rows[0].bits) == [1.0, 1.25, 1.5]
    assert (found.headline, found.context, found.lengths[1.5]) == (1.5, 256, 384)


def test_the_tables_to_be_kept_hold_every_run_and_length():
    rows = csv_tables.lengths(comparison()).splitlines()
    assert len(rows) == 1 + 2 * 3 * 6
    assert ",rope,1,2,512,8,1.52492,2.20000," in rows
    assert ",learned,0,8,2048,0,,,it supports only 256 positions" in rows
    assert csv_tables.positions(comparison()).splitlines()[1].startswith(",rope,0,256,0,0,")


def test_where_no_longer_window_was_evaluated_none_is_reported():
    learned = [with_lengths(run("learned", seed), 0.0, rows=256) for seed in range(3)]
    found = extrapolation([Arm("learned", tuple(learned))])
    assert found is not None
    assert found.headline is None
