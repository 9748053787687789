"""A study: its plan, and its tables."""

import math

import yaml

from posenc.analysis.claim_map import backbone_of
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


def test_another_setting_of_the_baseline_is_apart_from_the_backbone(tmp_path):
    blocks = [
        {"arms": ["pos=rope", "pos=sinusoidal optim.lr=0.006"]},
        {"arms": ["pos=sinusoidal optim.lr=0.003"], "alternative": "learning rate 0.003"},
        {"arms": ["pos=sinusoidal optim.lr=0.003"], "alternative": "learning rate 0.003", "units": [9]},
        {"arms": ["pos=rope", "pos=sinusoidal optim.lr=0.006"], "alternative": "replication", "seeds": [3]},
        {"arms": ["pos=rope"], "alternative": "replication", "seeds": [3], "units": [4]},
    ]
    shared = {"experiment": "claim_map", "precision": "32-true", "search_seeds": [9]}
    plan = {**shared, "unit": 10, "units": [1], "seeds": [0], "blocks": blocks}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    study = Study(tmp_path)
    found = [Result(*study.key(line, "text"), 2.0, math.nan, 2.5, "abc", "CPU") for line in study.lines()]
    (tmp_path / "runs.csv").write_text(table(Result, found))
    backbone, alternatives = backbone_of(study, "text")
    assert [(result.pos, result.lr) for result in backbone] == [("rope", 0.003), ("sinusoidal", 0.006)]
    assert {name: [(one.lr, one.seed) for one in group] for name, group in alternatives.items()} == {
        "sinusoidal, learning rate 0.003": [(0.003, 0), (0.003, 0)],
        "replication": [(0.003, 3), (0.006, 3), (0.003, 3)],  # of both arms: compared with each other
        "rope, replication": [(0.003, 3), (0.003, 3)],
        "sinusoidal, replication": [(0.006, 3)],
    }
