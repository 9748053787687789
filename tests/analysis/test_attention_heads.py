"""The scores of attention heads, and when the loss leaves the n-gram baseline behind."""

from dataclasses import replace

import numpy as np
import pytest

from posenc.analysis import attention_heads
from posenc.analysis.arms import Arm
from posenc.report import sentences
from tests.analysis.synthetic import panels, run, sweep
from tests.analysis.test_arms import measured


def test_heads_measured_less_often_than_the_loss_have_the_score_of_their_last_measurement():
    seldom = run("rope", 0, head_at=100)
    seldom.curve["previous_token"][np.arange(30) % 3 != 2] = np.nan  # every third validation, and not the last
    seldom.curve["previous_token"][-1] = np.nan
    found = panels(sweep(seldom, run("sinusoidal", 0, head_at=999)))[0].heads
    assert {row.scheme: row.scores["previous_token"].value for row in found} == {"rope": 0.4, "sinusoidal": 0.005}


def test_the_sentence_says_when_each_loss_leaves_the_bigram_model_behind_and_whose_never_does():
    early = [run("rope", seed, pace=2, head_at=60) for seed in range(3)]
    never = [run("none", seed, pace=0.1, head_at=999) for seed in range(3)]
    (panel,) = panels(sweep(*never, *early))
    sentence = "Steps until the loss is 0.1 below the 2.90 nats of the bigram model: rope 45, none not at all."
    assert (
        sentences.heads(panel) == f"{sentence} Previous-token score of the best head at the end: rope 0.40, none 0.01."
    )


def test_the_loss_leaves_the_bigram_model_behind_at_a_tenth_of_a_nat_under_it():
    step = attention_heads.dropped(run("rope", 0), floor=2.9)
    assert 2 + 2 * np.exp(-step / 100) == pytest.approx(2.8, abs=0.01)


def test_heads_that_were_measured_once_have_no_analysis():
    one = run("rope", 0, head_at=100)
    one.curve["previous_token"][:-1] = np.nan
    assert panels(sweep(one, run("sinusoidal", 0, head_at=200)))[0].heads == ()


def test_the_heads_shown_are_those_of_the_first_run_s_last_measurement_counted_from_1():
    place = {"layer": 1.0, "head": 0.0}
    of_seed = [({"step": 10.0, **place, "1": 0.1}, {"step": 20.0, **place, "1": score}) for score in (0.7, 0.9)]
    runs = [replace(run("rope", seed, head_at=60), heads=heads) for seed, heads in enumerate(of_seed)]
    (found,) = attention_heads.scheme_heads([Arm("rope", tuple(runs))], None)
    assert found.each == ({"scheme": "rope", "layer": 2, "head": 1, "scores": {"1": 0.7}},)


def test_a_truncated_run_has_no_heads_of_later_steps():
    heads = ({"step": 10.0, "layer": 0.0, "head": 0.0}, {"step": 20.0, "layer": 0.0, "head": 0.0})
    assert replace(run("rope", 0), heads=heads).until(10).heads == heads[:1]


def test_the_interval_of_a_score_is_within_0_and_1():
    runs = [
        measured(seed, [10, 20], previous_token=np.array([0, score]), induction=np.array([0, 0.1]))
        for seed, score in enumerate((0.0, 0.0, 0.9))
    ]
    (found,) = attention_heads.scheme_heads([Arm("rope", tuple(runs))], None)
    assert found.scores["previous_token"].interval == (0, 1)
