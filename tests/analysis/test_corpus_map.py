import math
from dataclasses import replace

import pytest
import yaml

from posenc.analysis.claim_map import advantage
from posenc.analysis.corpus_map import advantage_with, backbone_of, corpus_map
from posenc.analysis.results import Result, table
from posenc.analysis.study import Study
from tests.analysis.test_claim_map import UNIT, backbone


def test_another_setting_of_the_baseline_is_apart_from_the_backbone(tmp_path):
    blocks = [
        {"arms": ["pos=rope", "pos=sinusoidal optim.lr=0.006"]},
        {"arms": ["pos=sinusoidal optim.lr=0.003"], "alternative": "learning rate 0.003"},
        {"arms": ["pos=sinusoidal optim.lr=0.003"], "alternative": "learning rate 0.003", "units": [9]},
        {"arms": ["pos=rope", "pos=sinusoidal optim.lr=0.006"], "alternative": "replication", "seeds": [3]},
        {"arms": ["pos=rope"], "alternative": "replication", "seeds": [3], "units": [4]},
        {"arms": ["pos=sinusoidal optim.lr=0.003"]},  # asked for by an alternative first
    ]
    shared = {"experiment": "claim_map", "precision": "32-true", "search_seeds": [9]}
    plan = {**shared, "unit": 10, "units": [1], "seeds": [0], "blocks": blocks}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    study = Study(tmp_path)
    keys = dict.fromkeys(study.key(line, "text") for line in study.lines())
    found = [Result(*key, 2.0, math.nan, 2.5, "abc", "CPU") for key in keys]
    (tmp_path / "runs.csv").write_text(table(Result, found))
    backbone, alternatives = backbone_of(study, "text")
    assert [(result.pos, result.lr) for result in backbone] == [("rope", 0.003), ("sinusoidal", 0.006)]
    assert {name: [(one.lr, one.seed) for one in group] for name, group in alternatives.items()} == {
        "sinusoidal, learning rate 0.003": [(0.003, 0), (0.003, 0)],
        "replication": [(0.003, 3), (0.006, 3), (0.003, 3)],  # of both arms: compared with each other
        "rope, replication": [(0.003, 3), (0.003, 3)],
        "sinusoidal, replication": [(0.006, 3)],
    }
    (tmp_path / "runs.csv").write_text(table(Result, [*found, replace(found[0], lr=0.1)]))  # asked for by no block
    assert [run.key for run in corpus_map(Study(tmp_path), "text").results] == [run.key for run in found]


def test_without_runs_of_the_backbone_the_unit_is_that_of_the_others(tmp_path):
    """As when a replication is reproduced on its own."""
    block = {"what": "again", "alternative": "replication", "units": [2], "seeds": [3], "arms": ["pos=rope"]}
    shared = {"experiment": "claim_map", "precision": "32-true", "search_seeds": [9], "unit": 10}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**shared, "blocks": [block]}))
    study = Study(tmp_path)
    (line,) = study.lines()
    (tmp_path / "runs.csv").write_text(table(Result, [Result(*study.key(line, "text"), 2.0, math.nan, 2.5, "abc", "")]))
    found = corpus_map(study, "text")
    assert not found.backbone
    assert found.unit == found.results[0].tokens > 0


@pytest.mark.parametrize("pos", ["rope", "sinusoidal"])
def test_an_alternative_of_either_arm_is_compared_at_its_own_seeds_and_budgets(pos):
    runs = backbone()
    found = [
        replace(run, val_loss=run.val_loss * 0.99)
        for run in runs
        if (run.pos, run.seed, run.tokens) == (pos, 1, 16 * UNIT)
    ]
    (point,) = advantage_with(runs, found)
    assert (point.tokens, list(point.baseline_losses)) == (16 * UNIT, [1])
    (before,) = (one for one in advantage(runs, "rope", "sinusoidal") if one.tokens == 16 * UNIT)
    assert (point.by_seed[1] > before.by_seed[1]) == (pos == "rope")


def test_an_alternative_of_another_scheme_is_compared_in_place_of_the_baseline():
    runs = backbone()
    learned = [replace(run, pos="learned") for run in runs if run.pos == "sinusoidal"]
    found = [replace(run, val_loss=run.val_loss * 0.99) for run in learned if run.tokens == 16 * UNIT]
    (point,) = advantage_with([*runs, *learned], found)
    assert point.baseline_losses == {run.seed: run.val_loss for run in found}
    before = advantage([*runs, *learned], "rope", "learned")[-1]
    assert point.advantage.value < before.advantage.value
