"""What makes two runs the same row."""

import math
from dataclasses import replace

import pytest

from posenc.analysis.results import (
    BACKBONE,
    SEARCH,
    defaults,
    head_rows,
    key_of,
    result_of,
    share_rows,
)
from posenc.analysis.study import Study
from tests.analysis.synthetic import run
from tests.conftest import ROOT

EXPERIMENT = {"model": "tiny", "model.width": 128, "context": 256, "batch_size": 16, "objective": "causal"}
DEFAULTS = defaults(EXPERIMENT, {"pos.base": 10_000, "intervention.strength": 6, "intervention.offsets": [1]})
RUN = {
    **EXPERIMENT, "steps": 300, "optim.lr": 0.003, "pos": "rope", "seed": 0, "pos.base": 1000,
    "intervention.strength": 6, "intervention.offsets": [1],
}  # fmt: skip


def setting(**changed):
    return key_of({**RUN, **changed}, "text", DEFAULTS, search_seeds=[100])[1]


def test_own_hyperparameters_have_columns_and_make_no_other_setting():
    assert setting() == BACKBONE
    assert key_of(RUN, "text", DEFAULTS, [100])[5:] == (0.003, "", "1000")


def test_the_tokens_of_a_run_are_those_of_its_batches():
    assert key_of({**RUN, "context": 64, "batch_size": 32}, "text", DEFAULTS, [100])[4] == 300 * 32 * 64


def test_a_setting_names_what_differs_from_the_experiment_and_from_the_files_of_its_choices():
    assert setting(**{"model.width": 64}) == "model.width=64"
    assert setting(**{"optim.weight_decay": 0.0}) == "optim.weight_decay=0.0"
    given = {"intervention": "offset_bias", "intervention.strength": 4, "intervention.offsets": [2]}
    assert setting(**given) == "intervention=offset_bias intervention.strength=4 intervention.offsets=[2]"


@pytest.mark.parametrize(
    "changed",
    ["model.family.activation=swiglu", "attention=linear attention.features=32", "eval_windows=4", "model/family=palm"],
)
def test_whatever_else_changes_the_loss_is_in_the_setting(changed):
    def named(*overrides):
        return Study(ROOT / "results/claim-map").key(["experiment=claim_map", *overrides, "steps=300", "seed=0"], "")[1]

    assert named(*changed.split()) == changed
    assert named("log_every=5", "eval_every=30") == BACKBONE


def test_a_trial_names_its_setting_too():
    assert setting(seed=100) == SEARCH
    assert setting(seed=100, context=64) == "search context=64"


def test_a_run_of_before_there_were_interventions_has_none():
    older = {name: value for name, value in RUN.items() if not name.startswith("intervention")}
    assert key_of(older, "text", DEFAULTS, [100]) == key_of(RUN, "text", DEFAULTS, [100])


@pytest.mark.parametrize(
    ("measured", "kept"),
    [({"bigram_loss": 2.5}, 2.5), ({"unigram_loss": 2.8}, 2.8), ({"bigram_loss": None}, math.nan)],
    ids=["causal", "masked", "too large a vocabulary"],
)
def test_a_run_is_a_row_whatever_its_n_gram_baseline(measured, kept):
    one = run("rope", 0, setting={**RUN, "data": "text", "text": "0123456789abcdef"})
    summary = {name: value for name, value in one.summary.items() if name != "bigram_loss"}
    row = result_of(replace(one, summary={**summary, "val_loss_se": 0.02, **measured}), DEFAULTS, [100])
    assert row.bigram_loss == pytest.approx(kept, nan_ok=True)
    assert (row.val_loss, row.val_loss_se) == (pytest.approx(one.last_loss, abs=1e-6), pytest.approx(0.02))


def test_the_row_of_a_layer_is_its_best_head_s_at_the_end_of_the_run():
    scores = {(290, 0, 0): 0.9, (300, 0, 0): 0.2, (300, 0, 1): 0.4, (300, 0, 2): 0.3, (300, 1, 0): 0.1}
    heads = tuple({"step": step, "layer": layer, "head": head, "1": one} for (step, layer, head), one in scores.items())
    measured = replace(run("rope", 0, setting={**RUN, "data": "text", "text": "0123456789abcdef"}), heads=heads)
    rows = head_rows(measured, result_of(measured, DEFAULTS, [100]))
    assert [(row.layer, row.previous_token) for row in rows] == [(1, 0.4), (2, 0.1)]


def test_the_share_of_a_run_is_that_of_its_first_and_last_validation_and_without_one_it_has_no_row(tmp_path):
    setting = {**RUN, "data": "text", "text": "0123456789abcdef"}
    one = replace(run("sinusoidal", 0, setting=setting), source=str(tmp_path))
    result = result_of(one, DEFAULTS, [100])
    lines = ["step,position_share", "10,", "20,0.9", "30,", "40,0.5", "50,0.4", "60,"]
    (tmp_path / "metrics.csv").write_text("\n".join([*lines, ""]))
    (row,) = share_rows(one, result)
    assert (row.key, row.first, row.last) == (result.key, 0.9, 0.4)
    (tmp_path / "metrics.csv").write_text("step,position_share\n10,\n20,nan\n")
    assert share_rows(one, result) == []
