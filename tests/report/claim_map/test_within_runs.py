"""What the figure of the longest runs draws."""

import pytest

from posenc.analysis.results import CurveRow
from posenc.report.claim_map.within_runs import START, _mean, arms, within_runs
from tests.report.claim_map.test_ratios import points_of

TOKENS = (100, 1000, 2000, 8000)


def run(pos, seed, end, setting="backbone", lr=0.003, base="", scale=""):
    losses = dict(zip(TOKENS, (end + 2, end + 1, end + 0.5, end), strict=True))
    return [CurveRow("wiki", setting, pos, seed, 8000, lr, scale, base, at, loss) for at, loss in losses.items()]


ROPE = [*run("rope", 0, 1.30), *run("rope", 1, 1.32), *run("rope", 100, 1.31, "search")]


def test_an_arm_s_trial_is_one_of_its_seeds_and_the_arm_with_the_most_seeds_stands_for_its_scheme():
    better = run("rope", 2, 1.0, lr=0.001)
    other_setting = [*run("rope", 3, 0.9, "context=64"), *run("rope", 4, 0.9, "context=64")]
    first, second = arms([*better, *ROPE, *other_setting])["rope"]
    assert (first.lr, second.lr) == (0.003, 0.001)
    assert sorted(first.by_seed) == [0, 1, 100]


def test_of_two_arms_with_as_many_seeds_or_enough_the_one_that_ends_lower_stands_for_its_scheme():
    assert arms([*run("t5", 0, 1.4, lr=0.006), *run("t5", 0, 1.3, lr=0.001)])["t5"][0].lr == 0.001
    many = [row for seed in range(7) for row in run("rope", seed, 1.33, lr=0.006)]
    assert arms([*many, *ROPE, *run("rope", 2, 1.31)])["rope"][0].lr == 0.003


def test_a_trial_does_not_count_towards_which_arm_stands_for_its_scheme():
    chosen = [row for seed in range(3) for row in run("rope", seed, 1.31, lr=0.006)]
    low = [*run("rope", 0, 1.31), *run("rope", 1, 1.32), *run("rope", 2, 1.32), *run("rope", 100, 1.0, "search")]
    assert arms([*low, *chosen])["rope"][0].lr == 0.006


def test_a_line_is_a_run_minus_rope_s_of_the_same_seed_and_a_seed_without_one_is_left_out():
    other = [*run("sinusoidal", 1, 1.25), *run("sinusoidal", 100, 1.33, "search"), *run("sinusoidal", 7, 1.2)]
    drawn = within_runs([*ROPE, *other])
    assert drawn is not None
    _, *lines = drawn.axes[0].lines
    assert [line.get_label() for line in lines] == ["sinusoid, learning rate 0.003, 2 seeds", "_"]
    at = [tokens / 1e6 for tokens in TOKENS if tokens >= START * TOKENS[-1]]
    assert len(at) < len(TOKENS)
    for line, gap in zip(lines, (1.25 - 1.32, 1.33 - 1.31), strict=True):
        assert points_of(line) == [(tokens, pytest.approx(gap)) for tokens in at]


def test_a_mean_is_drawn_where_every_seed_has_a_value():
    assert _mean([{100: 0.1, 200: 0.2}, {200: 0.4, 300: 0.5}]) == {200: pytest.approx(0.3)}


def test_rope_with_other_hyperparameters_is_not_drawn_without_several_seeds_of_its_arm():
    other = [*run("rope", 7, 1.5, lr=0.01), *run("rope", 8, 1.5, lr=0.01)]
    drawn = within_runs([*ROPE, *other, *run("t5", 0, 1.4)])
    assert drawn is not None
    assert [line.get_label() for line in drawn.axes[0].lines[1:]] == ["T5, learning rate 0.003, 1 seed"]


def test_rope_with_other_hyperparameters_is_drawn_too_if_it_has_several_seeds():
    higher = [*run("rope", 0, 1.34, lr=0.006), *run("rope", 1, 1.35, lr=0.006)]
    once = run("rope", 0, 1.31, lr=0.001)
    drawn = within_runs([*ROPE, *higher, *once, *run("t5", 0, 1.3)])
    assert drawn is not None
    _, _, mean = lines = drawn.axes[0].lines
    assert [line.get_label() for line in lines[1:]] == [
        "T5, learning rate 0.003, 1 seed",
        "RoPE, learning rate 0.006, mean over 2 seeds",
    ]
    gap = (1.34 - 1.30 + 1.35 - 1.32) / 2
    assert points_of(mean) == [(tokens / 1e6, pytest.approx(gap)) for tokens in TOKENS if tokens >= START * TOKENS[-1]]
    assert within_runs([*ROPE, *higher]) is None


def test_the_amplitude_of_the_sinusoid_is_named_and_the_base_of_rope_if_several_are_drawn():
    arms = {base: [row for seed in (0, 1) for row in run("rope", seed, 1.3, base=base)] for base in ("1000", "100000")}
    sinusoid = run("sinusoidal", 0, 1.2, base="10000", scale="0.2")
    drawn = within_runs([*arms["1000"], *run("rope", 2, 1.3, base="1000"), *arms["100000"], *sinusoid])
    assert drawn is not None
    (axes,) = drawn.axes
    names = [line.get_label() for line in axes.lines[1:]]
    assert names == [
        "sinusoid, learning rate 0.003, amplitude 0.2, 1 seed",
        "RoPE, learning rate 0.003, base 100,000, mean over 2 seeds",
    ]
    assert (
        axes.get_title(loc="left")
        == "runs of 0.0M tokens minus RoPE, learning rate 0.003, base 1,000, of the same seed"
    )
    alone = within_runs([*arms["1000"], *sinusoid])
    assert alone is not None
    assert "base" not in alone.axes[0].get_title(loc="left")


def test_without_a_common_seed_nothing_is_drawn():
    assert within_runs(ROPE) is None
    assert within_runs(run("t5", 0, 1.3)) is None
    assert within_runs([*ROPE, *run("t5", 7, 1.3)]) is None
