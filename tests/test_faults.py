"""A shorter form of `python -m tests.faults`: each fault once or twice, on the real command line."""

import random
import signal
from pathlib import Path

import pytest

from tests.faults import damage, kills, limits, stops
from tests.faults.kill_at import MOMENTS
from tests.faults.toy import Toy, same_curve


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Toy:
    """A run that nothing befell."""
    toy = Toy(tmp_path_factory.mktemp("whole"))
    assert toy.finish().returncode == 0
    return toy


def test_a_run_killed_at_chosen_and_random_moments_has_the_curve_of_one_never_killed(whole, tmp_path):
    victim = Toy(tmp_path, whole.steps)
    moments = [("a cache's building", 1), ("a validation", 5), ("a checkpoint's writing", 60), ("a row", 9)]
    assert list(kills.at_moments(victim, moments)) == [moment for moment, _ in moments]
    list(kills.at_random(victim, 2, longest=6))
    assert list(kills.at_moments(victim, [("the summary", 1)])) == ["the summary"]
    assert victim.finish().returncode == 0
    assert same_curve(whole, victim)


def test_every_moment_that_is_aimed_at_is_known():
    assert kills.AIMED.keys() == MOMENTS.keys()


def test_a_signal_saves_the_very_step_says_where_and_the_run_goes_on_from_there(tmp_path):
    whole, victim = Toy(tmp_path / "whole", steps=2000), Toy(tmp_path / "victim", steps=2000)
    assert whole.finish().returncode == 0
    for signum, delay in ((signal.SIGTERM, 0.03), (signal.SIGINT, 0.07)):
        code, seconds, said = stops.stopped(victim, signum, after_rows=1, delay=delay)
        assert code == 128 + signum
        assert seconds < stops.PROMISED
        assert "is saved in" in said
        assert said.count("\n") == 1
    code, said = stops.twice(victim, between=0.0)
    assert code == 130
    assert "Traceback" not in said
    assert victim.finish().returncode == 0
    assert same_curve(whole, victim)


@pytest.mark.parametrize("harm", [damage.cut_short, damage.flip_a_bit])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(harm, whole, tmp_path):
    assert damage.resumes_from_the_one_before(whole, tmp_path / "victim", harm, random.Random(1))


def test_a_pickle_with_code_in_the_place_of_a_checkpoint_is_not_run(whole, tmp_path):
    assert damage.is_not_run(whole, tmp_path / "victim", protocol=4)


def test_a_checkpoint_of_another_configuration_is_refused_naming_what_differs(whole, tmp_path):
    assert damage.foreign(whole, tmp_path / "victim", "pos.base=500")


@pytest.mark.skipif(not limits.can_mount(), reason="needs the right to mount a small file system")
def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on_when_there_is_space(whole, tmp_path):
    assert limits.survives_a_full_disk(whole, tmp_path / "victim", "900k")


def test_a_loss_that_is_no_number_stops_the_run_and_reaches_no_checkpoint(tmp_path):
    assert limits.stops_at_a_loss_that_is_no_number(tmp_path, 1e4)


def test_a_sweep_goes_on_after_a_run_that_diverged(tmp_path):
    toy = Toy(tmp_path, steps=20)
    told = toy.finish("-m", "optim.lr=1e4,0.001", "optim.clip=1e30", "eval_every=5", "log_every=5")
    assert told.returncode == 1
    assert "optim.lr=10000" in told.stderr
    assert "Traceback" not in told.stderr
    finished = list(Path(tmp_path).rglob("summary.json"))
    assert len(finished) == 1


def test_too_little_memory_is_told_with_what_to_lower(tmp_path):
    assert limits.says_what_to_lower(tmp_path, "batch_size=2000000")
