"""The hyperparameter search on the claim map's page."""

import numpy as np
import pytest

from posenc.analysis.search import Trial, expected_best
from posenc.report.claim_map import search
from posenc.report.looks import titled

TRIALS = {
    "rope": [Trial(0.006, "", "1000", 1.6, 2), Trial(0.003, "", "1000", 1.7, 1), Trial(0.012, "", "1000", 1.9, 1)],
    "sinusoidal": [Trial(0.003, "0.1", "", 2.1, 1), Trial(0.006, "0.1", "", 2.2, 1)],
    "learned": [Trial(0.003, "0.1", "", 2.5, 1)],
}
CHOSEN = {("rope", 0.003, "", "1000"), ("sinusoidal", 0.0042, "0.1", "")}


def drawn(trials, chosen=frozenset()):
    (axes,) = search.figure(trials, 4_915_200, chosen).axes
    return axes


def test_an_arm_s_line_is_the_expected_best_of_k_and_its_trials_are_bars_at_k_1():
    axes = drawn(TRIALS)
    lines = {line.get_label(): line for line in axes.lines}
    for pos in ("rope", "sinusoidal"):
        losses = [trial.loss for trial in TRIALS[pos]]
        assert np.asarray(lines[titled(pos)].get_xdata()).tolist() == list(range(1, len(losses) + 1))
        assert lines[titled(pos)].get_ydata() == pytest.approx(expected_best(losses))
    bars = [line for line in axes.lines if line.get_marker() == "_"]
    assert [np.asarray(bar.get_ydata()).tolist() for bar in bars] == [[1.6, 1.7, 1.9], [2.1, 2.2]]
    assert {x for bar in bars for x in bar.get_xdata()} == {1}


def test_an_arm_with_less_than_half_of_the_trials_has_no_line():
    assert "learned" not in {line.get_label() for line in drawn(TRIALS).lines}


def test_the_trial_whose_hyperparameters_the_backbone_has_is_in_a_ring():
    rings = [line for line in drawn(TRIALS, CHOSEN).lines if line.get_fillstyle() == "none"]
    assert [np.asarray(ring.get_ydata()).tolist() for ring in rings] == [[1.7], []]


def test_the_trials_above_the_upper_quartile_are_cut_and_counted():
    many = {"rope": [Trial(0.006, "", "", 1.6 + 0.01 * i, 1) for i in range(9)] + [Trial(0.1, "", "", 1.9, 1)]}
    axes = drawn(many)
    assert 1.66 < axes.get_ylim()[1] < 1.9
    shown = axes.get_ylim()[1]
    cut = sum(trial.loss > shown for trial in many["rope"])
    assert [text.get_text() for text in axes.texts] == [f"{cut} above"]
    (caret,) = (line for line in axes.lines if line.get_marker() == "^")
    assert caret.get_ydata() == [shown]


def test_the_ticks_are_numbers_of_trials():
    ticks = drawn(TRIALS).get_xticks()
    assert ticks.tolist() == [1, 2, 3]


def test_an_arm_s_row_has_its_number_of_trials_its_best_setting_and_its_two_lowest_losses():
    rope, sinusoidal, _ = search.table(TRIALS).splitlines()[2:]
    assert rope == "| rope | 3 | lr 0.006, base 1000 | 1.6000, 2 seeds | 1.7000, 1 seed |"
    assert sinusoidal == "| sinusoidal | 2 | lr 0.003, scale 0.1 | 2.1000, 1 seed | 2.2000, 1 seed |"
