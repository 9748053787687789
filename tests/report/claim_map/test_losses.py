"""What the figure of the final losses draws."""

import statistics
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Annotation, Text

from posenc.analysis.claim_map import advantage, compared
from posenc.report.claim_map.losses import losses
from tests.analysis.test_claim_map import SLOW, UNIT, backbone

SLOWER = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
KINDS = ("other settings", "replications")  # of hollow markers


def panels(runs, alternatives=None):
    return losses(runs, advantage(runs, "rope", "sinusoidal"), alternatives or {}).axes


def arrows_of(axes):
    return [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]


def test_every_run_is_a_dot_and_every_ratio_an_arrow_from_the_baseline_s_budget_to_the_arm_s():
    runs = backbone()
    points = advantage(runs, "rope", "sinusoidal")
    left, right = panels(runs)
    for axes in (left, right):
        assert sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == "o") == len(runs)
    arrows = arrows_of(right)
    drawn = [point for point in points if point.has_ratio]
    assert len(arrows) == len(drawn) > 0
    for arrow, point in zip(arrows, drawn, strict=True):
        loss = statistics.median(point.baseline_losses.values())
        assert arrow.xyann == (point.tokens, loss)
        assert arrow.xy == pytest.approx((point.tokens / point.advantage.value, loss))
    assert [text.get_text() for text in right.texts if text.get_text()] == ["1.60x"] * len(drawn)


def test_a_budget_at_which_the_seeds_disagree_about_which_arm_is_ahead_has_no_arrow():
    rope = {(run.seed, run.tokens): run.val_loss for run in backbone() if run.pos == "rope"}
    ahead = [
        replace(run, val_loss=rope[0, 8 * UNIT] - 0.05)
        if (run.pos, run.seed, run.tokens) == ("sinusoidal", 0, 8 * UNIT)
        else run
        for run in backbone()
    ]
    (point,) = (point for point in advantage(ahead, "rope", "sinusoidal") if point.tokens == 8 * UNIT)
    assert point.has_ratio
    assert min(point.by_seed.values()) < 1
    *_, right = panels(ahead)
    assert [text.get_text() for text in right.texts if text.get_text()].count("1.60x") == len(arrows_of(right))
    assert point.tokens not in [arrow.xyann[0] for arrow in arrows_of(right)]


def test_a_line_passes_through_the_medians_so_that_one_slow_seed_does_not_bend_it():
    (line,) = (line for line in panels(SLOWER)[0].lines if line.get_label() == "sinusoid")
    ends = sorted(run.val_loss for run in SLOWER if (run.pos, run.tokens) == ("sinusoidal", SLOW[2]))
    assert dict(line.get_xydata())[SLOW[2]] == ends[1] < np.mean(ends) - 0.1


def with_a_lower_rate(units):
    """Alternatives to both arms at one budget, which end 0.05 nats lower."""
    found = [replace(run, val_loss=run.val_loss - 0.05, lr=0.001) for run in backbone() if run.tokens == units * UNIT]
    return {f"{pos}, learning rate 0.001": [run for run in found if run.pos == pos] for pos in ("rope", "sinusoidal")}


def test_an_alternative_s_runs_are_hollow_in_the_colour_of_its_arm_in_the_second_panel_only():
    alternatives = with_a_lower_rate(8)
    left, right = panels(backbone(), alternatives)
    drawn = {line.get_label(): line for line in right.lines}
    for runs, label in zip(alternatives.values(), ("RoPE", "sinusoid"), strict=True):
        marks = drawn[f"{label}, other settings"]
        assert marks.get_xydata().tolist() == [[run.tokens, run.val_loss] for run in runs]
        assert (marks.get_fillstyle(), marks.get_linestyle()) == ("none", "None")
        assert marks.get_color() == drawn[label].get_color()
    assert len(left.lines) == len(panels(backbone())[0].lines)


def test_a_budget_less_than_twice_the_last_one_on_its_line_is_named_on_a_line_below():
    runs = [*backbone(), *(replace(run, tokens=12 * UNIT) for run in backbone() if run.tokens == 8 * UNIT)]
    left, *_ = panels(runs)
    names = dict(zip(left.get_xticks(), (text.get_text() for text in left.get_xticklabels()), strict=True))
    assert [names[units * UNIT] for units in (8, 12, 16)] == ["9.8", "\n14.7", "19.7"]


def test_other_settings_and_replications_have_a_marker_each_which_both_arms_share():
    alternatives = with_a_lower_rate(8)
    again = {name: [replace(run, seed=run.seed + 3) for run in runs] for name, runs in alternatives.items()}
    again["replication"] = [run for runs in again.values() for run in runs]  # a second name of the same runs
    _, right = panels(backbone(), {**alternatives, **{f"again, {name}": runs for name, runs in again.items()}})
    markers = {line.get_label(): line.get_marker() for line in right.lines}
    settings, seeds = ({markers[f"{arm}, {kind}"] for arm in ("RoPE", "sinusoid")} for kind in KINDS)
    assert len(settings) == len(seeds) == 1
    assert settings != seeds
    drawn = [line for line in right.lines if line.get_fillstyle() == "none"]
    assert sum(len(line.get_xdata()) for line in drawn) == 2 * sum(map(len, alternatives.values()))


def test_the_budgets_at_which_the_arms_are_compared_are_those_that_no_seed_ends_too_high_for():
    points = advantage(SLOWER, "rope", "sinusoidal")
    assert [point.tokens for point in compared(points)] == [units * UNIT for units in (2, 8, 16)]
    on_plateau = advantage([replace(run, bigram_loss=1.9) for run in SLOWER], "rope", "sinusoidal")
    assert [point.tokens for point in compared(on_plateau)] == [units * UNIT for units in (8, 16)]


def test_the_second_panel_shows_every_run_of_these_budgets_and_every_arrow():
    runs = [replace(run, bigram_loss=1.9) for run in SLOWER]
    points = advantage(runs, "rope", "sinusoidal")
    _, right = panels(runs)
    low, high = right.get_ylim()
    shown = {point.tokens for point in compared(points)}
    ends = [run.val_loss for run in runs if run.tokens in shown]
    assert low < min(ends) < max(ends) < high
    assert high - low == pytest.approx(1.16 * (max(ends) - min(ends)))
    left, end = right.get_xlim()
    assert 4 * UNIT < left < 8 * UNIT / 1.6
    assert 16 * UNIT < end < 20 * UNIT


def test_where_one_budget_can_be_compared_there_is_one_panel():
    assert len(panels(backbone(budgets=(1, 2)))) == 1
    assert len(panels(backbone(budgets=(1, 2, 4)))) == 2


def test_no_text_is_smaller_than_nine_points():
    runs = backbone()
    fig = losses(runs, advantage(runs, "rope", "sinusoidal"), {})
    assert min(float(text.get_fontsize()) for text in fig.findobj(Text) if text.get_text()) >= 9


def test_the_line_of_the_bigram_model_is_left_out_far_above_the_runs():
    for loss, drawn in ((3.0, True), (9.0, False)):
        axes = panels([replace(run, bigram_loss=loss) for run in backbone()])[0]
        assert any(line.get_color() == "#8c8c8c" for line in axes.lines) == drawn


def test_the_line_of_the_bigram_model_is_at_its_mean_over_runs():
    runs = [replace(run, bigram_loss=2.5 + 0.1 * (run.seed == 1)) for run in backbone()]
    axes = panels(runs)[0]
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_color() == "#8c8c8c"]
    assert pytest.approx(2.5 + 0.1 / 3) in levels
