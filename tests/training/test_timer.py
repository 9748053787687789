import time

import pytest

from posenc.training.timer import LOOP, START, TRAINING, WAITING, Timer


def test_all_of_the_time_is_in_exactly_one_phase():
    begun = time.perf_counter()
    timer = Timer()
    timer.enter(TRAINING)
    time.sleep(0.01)
    with timer.within(WAITING):
        time.sleep(0.02)
    timer.enter(LOOP)
    spent = timer.spent()
    whole = time.perf_counter() - begun
    assert set(spent) == {START, TRAINING, WAITING, LOOP}
    assert 0.03 <= sum(spent.values()) <= whole
    assert timer.seconds[TRAINING] >= 0.01
    assert timer.seconds[WAITING] >= 0.02


def test_a_phase_inside_another_leads_back_also_after_an_error():
    timer = Timer()
    timer.enter(TRAINING)
    with pytest.raises(RuntimeError), timer.within(WAITING):
        raise RuntimeError
    assert timer.enter(LOOP) == TRAINING


def test_the_longest_phase_comes_first():
    timer = Timer()
    timer.seconds.update({WAITING: 1.0, TRAINING: 3.0})
    assert list(timer.spent())[:2] == [TRAINING, WAITING]
