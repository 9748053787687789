import time

import pytest

from posenc.training.timing import LOOP, START, TRAINING, WAITING, Phases


def test_all_of_the_time_is_in_exactly_one_phase():
    begun = time.perf_counter()
    phases = Phases()
    phases.enter(TRAINING)
    time.sleep(0.01)
    with phases.within(WAITING):
        time.sleep(0.02)
    phases.enter(LOOP)
    spent = phases.spent()
    whole = time.perf_counter() - begun
    assert set(spent) == {START, TRAINING, WAITING, LOOP}
    assert 0.03 <= sum(spent.values()) <= whole
    assert phases.seconds[TRAINING] >= 0.01
    assert phases.seconds[WAITING] >= 0.02


def test_a_phase_inside_another_leads_back_also_after_an_error():
    phases = Phases()
    phases.enter(TRAINING)
    with pytest.raises(RuntimeError), phases.within(WAITING):
        raise RuntimeError
    assert phases.enter(LOOP) == TRAINING


def test_the_longest_phase_comes_first():
    phases = Phases()
    phases.seconds.update({WAITING: 1.0, TRAINING: 3.0})
    assert list(phases.spent())[:2] == [TRAINING, WAITING]
