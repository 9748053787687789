"""A study: its plan, and its tables."""

import math

import yaml

from posenc.analysis.results import NGramRow, Result, ShareRow, table
from posenc.analysis.study import Study
from tests.conftest import ROOT


def test_a_setting_that_differs_is_described_by_the_block_of_the_plan_that_has_it_first():
    changes = Study(ROOT / "results/claim-map").changes
    assert changes["model.width=64"] == "half the width"
    assert changes["context=64 batch_size=64"] == "windows of 64"
    assert changes["batch_size=64"] == "four times the batch"


def test_a_table_of_a_study_has_its_rows_by_corpus(tmp_path):
    plan = {"experiment": "claim_map", "precision": "32-true", "search_seeds": [], "blocks": []}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    rows = [NGramRow("wiki", 2, 2.5), NGramRow("bible", 2, 2.1), NGramRow("wiki", 3, 2.2)]
    (tmp_path / "ngrams.csv").write_text(table(NGramRow, rows))
    study = Study(tmp_path)
    assert study.rows("ngrams.csv", NGramRow, "wiki") == [rows[0], rows[2]]
    assert study.rows("shares.csv", ShareRow, "wiki") == []


def test_the_corpora_are_in_the_plan_s_order_then_the_others(tmp_path):
    plan = {
        "experiment": "claim_map",
        "precision": "32-true",
        "search_seeds": [9],
        "corpora": {"wiki": "Wikipedia", "bible": "The Bible", "unread": "Unread"},
        "blocks": [{"arms": ["pos=rope"], "unit": 10, "units": [1], "seeds": [0]}],
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    study = Study(tmp_path)
    (line,) = study.lines()
    found = [Result(*study.key(line, corpus), 2.0, math.nan, 2.5, "abc", "CPU") for corpus in ("bible", "a", "wiki")]
    (tmp_path / "runs.csv").write_text(table(Result, found))
    assert study.corpora == ("wiki", "bible", "a")
