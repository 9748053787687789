"""The rows of a finished run."""

import math
from dataclasses import replace

import pytest

from posenc.analysis.results import head_rows, result_of, share_rows
from posenc.analysis.run_key import Key
from tests.analysis.synthetic import run

KEY = Key("text-01234567", "backbone", "rope", 0, 1_228_800, 0.003, "", "1000")


@pytest.mark.parametrize(
    ("measured", "kept"),
    [({"bigram_loss": 2.5}, 2.5), ({"unigram_loss": 2.8}, 2.8), ({"bigram_loss": None}, math.nan)],
    ids=["causal", "masked", "too large a vocabulary"],
)
def test_a_run_is_a_row_whatever_its_n_gram_baseline(measured, kept):
    one = run("rope", 0)
    summary = {name: value for name, value in one.summary.items() if name != "bigram_loss"}
    row = result_of(replace(one, summary={**summary, "val_loss_se": 0.02, **measured}), KEY)
    assert row.bigram_loss == pytest.approx(kept, nan_ok=True)
    assert (row.val_loss, row.val_loss_se) == (pytest.approx(one.last_loss, abs=1e-6), pytest.approx(0.02))


def test_the_row_of_a_layer_is_its_best_head_s_at_the_end_of_the_run():
    scores = {(290, 0, 0): 0.9, (300, 0, 0): 0.2, (300, 0, 1): 0.4, (300, 0, 2): 0.3, (300, 1, 0): 0.1}
    heads = tuple({"step": step, "layer": layer, "head": head, "1": one} for (step, layer, head), one in scores.items())
    measured = replace(run("rope", 0), heads=heads)
    rows = head_rows(measured, result_of(measured, KEY))
    assert [(row.layer, row.previous_token) for row in rows] == [(1, 0.4), (2, 0.1)]


def test_the_share_of_a_run_is_that_of_its_first_and_last_validation_and_without_one_it_has_no_row(tmp_path):
    one = replace(run("sinusoidal", 0), source=str(tmp_path))
    result = result_of(one, KEY)
    lines = ["step,position_share", "10,", "20,0.9", "30,", "40,0.5", "50,0.4", "60,"]
    (tmp_path / "metrics.csv").write_text("\n".join([*lines, ""]))
    (row,) = share_rows(one, result)
    assert (row.key, row.first, row.last) == (result.key, 0.9, 0.4)
    (tmp_path / "metrics.csv").write_text("step,position_share\n10,\n20,nan\n")
    assert share_rows(one, result) == []
