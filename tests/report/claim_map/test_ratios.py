"""What the figures of the claim map draw."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
from matplotlib.collections import LineCollection
from matplotlib.text import Text

from posenc.analysis.claim_map import advantage
from posenc.analysis.convergence import Estimate
from posenc.report.claim_map.ratios import PUBLISHED_RATIOS, advantages
from posenc.report.looks import LOOKS
from tests.analysis.test_claim_map import SLOW, UNIT, backbone


def test_the_figure_has_the_interval_of_a_single_budget_and_a_triangle_at_each_bound():
    runs = [
        replace(run, val_loss=1.31) if (run.pos, run.seed, run.tokens) == ("sinusoidal", 2, 16 * UNIT) else run
        for run in backbone()
    ]
    first, *_, last = advantage(runs, "rope", "sinusoidal")
    above = drawn([first, last])[0]
    (bar,) = (drawn for drawn in above.collections if isinstance(drawn, LineCollection))
    assert bar.get_segments()[0][:, 1] == pytest.approx(last.advantage.interval)
    assert marks(above, "^") == [(UNIT, 1.0)] * 3


def test_a_budget_that_rope_does_not_reach_is_a_triangle_that_no_line_goes_to():
    above = drawn(shorter())[0]
    assert marks(above, "v") == [(16 * UNIT, 2.0)] * 3
    ends = [points_of(line)[-1][0] for line in above.lines if len(line.get_xdata()) > 1 and line.get_ydata()[0] != 1]
    assert ends == [8 * UNIT]
    assert above.get_ylim()[0] <= 0.6


def test_a_line_against_another_scheme_is_hollow_in_its_colour_with_its_bounds_too():
    above = drawn(advantage(backbone(), "rope", "sinusoidal"), others={"t5": shorter()})[0]
    (line,) = (line for line in above.lines if line.get_label() == "against T5, 3 seeds")
    assert line.get_fillstyle() == "none"
    assert line.get_color() == LOOKS["t5"].colour
    assert points_of(line) == [(units * UNIT, pytest.approx(1.6)) for units in (2, 4, 8)]
    assert marks(above, "v") == [(16 * UNIT, 2.0)]


def test_a_setting_has_a_ring_for_each_seed_or_a_triangle_at_its_bound():
    points = advantage(backbone(), "rope", "sinusoidal")
    first, *_, last = points
    plateau = replace(first, plateau=True)
    arms, factors = {"rope, short": shorter()[-1:]}, {"attention=linear": [plateau], "against t5": [last]}
    rows = drawn(points, different={"Other settings": arms, "None": {}, "One difference": factors})[2]
    names = ["RoPE, short, 19.7M", "attention=linear, 1.2M (plateau)", "against T5, 19.7M", *PUBLISHED_RATIOS]
    assert [tick.get_text() for tick in rows.get_yticklabels()] == names
    headings = [text.get_text() for text in rows.texts]
    assert headings == ["Other settings", "One difference", "Published: other models, other measures"]
    assert marks(rows, "<") == [(2.0, 1)] * 3
    assert marks(rows, ">") == [(1.0, 3)] * 3
    assert marks(rows, "o") == [(pytest.approx(1.6), 4)] * 3
    (bar,) = (found for found in rows.collections if isinstance(found, LineCollection))
    assert bar.get_segments()[0][:, 0] == pytest.approx(last.advantage.interval)


def test_a_bound_over_seeds_of_which_some_have_an_n_is_their_geometric_mean():
    runs = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    point = advantage(runs, "rope", "sinusoidal")[2]
    assert sorted(point.by_seed.values()) == [pytest.approx(1.6), pytest.approx(1.6), math.inf]
    above = drawn(shorter(), others={"learned": [point]})[0]
    assert marks(above, "^")[-1] == (SLOW[2], pytest.approx((1.6 * 1.6 * 4) ** (1 / 3)))


def test_seeds_of_which_one_is_above_every_budget_and_one_below_have_both_bounds_and_no_mean():
    points = advantage(backbone(), "rope", "sinusoidal")
    disagreeing = replace(points[-1], by_seed={0: math.inf, 1: 0.0}, advantage=Estimate(math.inf, 2))
    above, _, rows = drawn(points, {"learned": [disagreeing]}, {"One difference": {"linear": [disagreeing]}})
    assert marks(rows, ">") == [(disagreeing.above, 1)]
    assert marks(rows, "<") == [(disagreeing.below, 1)]
    assert marks(rows, "o") == []
    assert marks(above, "^")[-1] == (disagreeing.tokens, disagreeing.above)
    assert marks(above, "v") == [(disagreeing.tokens, disagreeing.below)]


def test_each_published_ratio_is_a_star_in_its_row():
    rows = drawn(shorter())[2]
    (stars,) = (line for line in rows.lines if line.get_marker() == "*")
    names = [tick.get_text() for tick in rows.get_yticklabels()]
    assert {names[i]: x for i, (x, _) in enumerate(points_of(stars))} == PUBLISHED_RATIOS
    assert [y for _, y in points_of(stars)] == list(rows.get_yticks())


def test_the_gap_is_a_ring_for_each_seed_and_a_line_through_the_means():
    runs = [replace(run, val_loss=2.4) if (run.pos, run.seed, run.tokens) == SLOW else run for run in backbone()]
    points = advantage(runs, "rope", "sinusoidal")
    below = drawn(points)[1]
    _, line, *rings = below.lines
    gaps = [[point.baseline_losses[seed] - point.arm_losses[seed] for seed in point.arm_losses] for point in points]
    assert [y for _, y in points_of(line)] == pytest.approx([fmean(seeds) for seeds in gaps])
    assert [[y for _, y in points_of(ring)] for ring in rings] == gaps


def test_no_text_is_smaller_than_nine_points():
    points = advantage(backbone(), "rope", "sinusoidal")
    fig = advantages(points, {"learned": shorter()}, {"One": {"against t5": points[:1]}}, {2: 2.0, 3: 1.8})
    assert min(float(text.get_fontsize()) for text in fig.findobj(Text) if text.get_text()) >= 9


def shorter():
    """N where RoPE has not been trained on the baseline's largest budget."""
    return advantage([run for run in backbone() if run.pos != "rope" or run.tokens <= 8 * UNIT], "rope", "sinusoidal")


def drawn(main, others=None, different=None):
    """The panels: N over tokens, the gap, and the rows."""
    return advantages(main, others or {}, different or {}, {}).axes


def points_of(line):
    return [(float(x), float(y)) for x, y in line.get_xydata()]


def marks(axes, marker):
    return [points_of(line)[0] for line in axes.lines if line.get_marker() == marker]


def test_an_n_gram_model_is_between_the_two_budgets_around_its_loss_in_log_tokens():
    runs = [replace(run, val_loss=run.val_loss - 0.2 * (run.tokens == 16 * UNIT)) for run in backbone()]
    points = advantage(runs, "rope", "sinusoidal")
    ngrams = {3: (points[1].loss + points[2].loss) / 2, 4: points[3].loss}
    (top,) = advantages(points, {}, {}, ngrams).axes[0].child_axes
    assert list(top.get_xticks()) == pytest.approx([2**1.5 * UNIT, 8 * UNIT])
