"""When heads form, beside the loss."""

import numpy as np
import pytest

from posenc.analysis import attention_heads
from posenc.report import sentences
from tests.analysis.synthetic import panels, run, sweep


def test_a_head_forms_when_a_tenth_of_its_attention_falls_on_the_token_before():
    one = run("rope", 0, head_at=100)
    assert 90 < attention_heads.formed(one) < 100
    assert attention_heads.formed(run("rope", 0, head_at=1000)) == np.inf


def test_heads_looked_at_more_seldom_than_the_loss_tell_the_same():
    often, seldom = run("rope", 0, head_at=100), run("rope", 0, head_at=100)
    seldom.curve["previous_token"][np.arange(30) % 3 != 2] = np.nan  # every third validation, and not the last
    seldom.curve["previous_token"][-1] = np.nan
    assert abs(attention_heads.formed(seldom) - attention_heads.formed(often)) < 20
    found = panels(sweep(seldom, run("sinusoidal", 0, head_at=200)))[0].heads
    assert found is not None
    assert found.rows[0].scores["previous_token"].value == 0.4


def test_the_sentence_names_who_forms_a_head_first_and_who_never_does():
    early = [run("rope", seed, pace=2, head_at=60) for seed in range(3)]
    late = [run("sinusoidal", seed, head_at=100) for seed in range(3)]
    never = [run("none", seed, pace=0.1, head_at=999) for seed in range(3)]
    found = panels(sweep(*never, *late, *early))[0].heads
    assert found is not None
    assert [row.scheme for row in found.rows] == ["rope", "sinusoidal", "none"]
    assert "rope 52, sinusoidal 92, none not at all" in sentences.heads(found)
    assert "In 3 of 9 runs neither happens" in sentences.heads(found)


def test_the_rank_correlation_is_one_where_head_and_loss_come_in_one_order():
    runs = [
        run(scheme, 0, pace=100 / at, head_at=at) for scheme, at in (("rope", 50), ("sinusoidal", 100), ("none", 200))
    ]
    found = panels(sweep(*runs))[0].heads
    assert found is not None
    assert "their rank correlation is 1.00" in sentences.heads(found)


def test_runs_that_did_not_look_at_their_heads_have_no_analysis():
    assert panels(sweep(run("rope", 0), run("sinusoidal", 0)))[0].heads is None


@pytest.mark.parametrize("scheme", ["rope", "none"])
def test_the_loss_leaves_the_bigram_model_behind_at_a_tenth_of_a_nat_under_it(scheme):
    one = run(scheme, 0)
    step = attention_heads.dropped(one, floor=2.9)
    assert 2 + 2 * np.exp(-step / 100) == pytest.approx(2.8, abs=0.01)


def test_heads_that_were_looked_at_once_have_no_time_of_formation():
    one = run("rope", 0, head_at=100)
    one.curve["previous_token"][:-1] = np.nan
    assert panels(sweep(one, run("sinusoidal", 0, head_at=200)))[0].heads is None
