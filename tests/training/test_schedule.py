import pytest

from posenc.config.instantiate import build
from posenc.training.schedule import WSD, Constant, Cosine, steps_of
from tests.conftest import composed


def test_the_default_warms_up_over_a_tenth_of_the_steps_and_then_falls_to_a_tenth():
    schedule = build(composed(), "schedule")
    factors = [schedule.lr_factor(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert factors[10] == 1.0
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[-1] == pytest.approx(0.1)


def test_the_default_falls_along_half_a_cosine():
    """At a third and two thirds of the way down (steps 2 and 4 of 0 to 6), cos is 1/2 and -1/2."""
    factors = [Cosine(min_lr_ratio=0.2).lr_factor(step, 7) for step in (0, 2, 3, 4, 6)]
    assert factors == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_warm_up_of_all_steps_is_taken_and_a_share_is_rounded_to_the_nearest_step():
    assert steps_of(8, 8) == 8
    assert steps_of(0.45, 10) == round(4.5) == 4
    assert steps_of(0.19, 10) == 2


def test_warm_up_is_a_share_of_the_steps_or_a_number_of_them():
    assert [Constant(warmup=0.5).lr_factor(step, 8) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [Constant(warmup=2).lr_factor(step, 8) for step in range(3)] == [0.5, 1.0, 1.0]
    assert Constant(warmup=0).lr_factor(0, 8) == 1.0


def test_wsd_is_stable_between_warm_up_and_a_linear_cool_down():
    factors = [WSD(warmup=2, cooldown=4, min_lr_ratio=0.2).lr_factor(step, 10) for step in range(10)]
    assert factors == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])


@pytest.mark.parametrize("schedule", [WSD(min_lr_ratio=0.2), Cosine(min_lr_ratio=0.2)])
def test_the_learning_rate_stays_at_its_minimum_after_the_last_step(schedule):
    assert [schedule.lr_factor(step, 10) for step in (9, 10, 20)] == pytest.approx([0.2, 0.2, 0.2])


def test_runs_of_different_lengths_share_wsd_up_to_the_cool_down_of_the_shorter_one():
    schedule = WSD(warmup=30, cooldown=0.2)
    short, long = ([schedule.lr_factor(step, steps) for step in range(steps)] for steps in (300, 600))
    assert short[:240] == long[:240]
    assert short[240] != long[240]


@pytest.mark.parametrize("schedule", [Constant(warmup=1.0), Cosine(warmup=1.0), WSD(warmup=1.0, cooldown=1.0)])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_schedule_that_is_all_warm_up_or_all_cool_down_stays_between_0_and_1(schedule, steps):
    assert all(0 <= schedule.lr_factor(step, steps) <= 1 for step in range(steps))


def test_every_schedule_has_the_spans_of_its_file_by_default():
    chosen = [build(composed(f"schedule={name}"), "schedule") for name in ("constant", "cosine", "wsd")]
    assert chosen == [Constant(0.1), Cosine(0.1, min_lr_ratio=0.1), WSD(30, min_lr_ratio=0.0, cooldown=0.2)]
