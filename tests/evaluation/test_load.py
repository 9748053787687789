"""The run that is loaded, and weights that are not those of the model in config.yaml."""

import os
from pathlib import Path

import pytest
import torch
import yaml

from posenc.config.instantiate import build, build_model
from posenc.errors import UserError
from posenc.evaluation.load import _load_weights, _weights, load, newest_run
from posenc.positions import PositionScheme
from posenc.storage.checkpoint_files import newest_first, stem
from posenc.training.checkpoint_io import CheckpointIO
from tests.conftest import composed
from tests.evaluation.random_model import trained


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_numbers_are_refused(value):
    model = trained(PositionScheme()).model
    weights = {f"model.{name}": weight.clone() for name, weight in model.state_dict().items()}
    _load_weights(model, weights, Path("a.ckpt"))
    weights["model.norm.weight"][3] = value
    with pytest.raises(UserError, match="^a.ckpt has weights that are NaN or infinite"):
        _load_weights(model, weights, Path("a.ckpt"))


def test_a_buffer_may_be_infinite_as_a_mask_is_but_not_nan():
    scheme = PositionScheme()
    scheme.register_buffer("mask", torch.full((2, 2), -torch.inf))
    model = trained(scheme).model
    weights = {f"model.{name}": weight.clone() for name, weight in model.state_dict().items()}
    _load_weights(model, weights, Path("a.ckpt"))
    weights["model.scheme.mask"][0, 0] = torch.nan
    with pytest.raises(UserError, match="^a.ckpt has weights that are NaN or infinite"):
        _load_weights(model, weights, Path("a.ckpt"))


def test_the_newest_run_is_the_newest_that_has_a_checkpoint(tmp_path):
    for number, name in enumerate(("seed0", "seed1", "seed2")):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
        os.utime(tmp_path / name / "config.yaml", (number, number))
    assert newest_run([tmp_path]) == tmp_path / "seed2"  # `load` will report that it has none
    for name in ("seed0", "seed1"):
        CheckpointIO().save_checkpoint({"state_dict": {}}, tmp_path / name / "checkpoints" / "step-000000001")
    assert newest_run([tmp_path]) == tmp_path / "seed1"


def test_runs_are_found_through_links(tmp_path):
    (tmp_path / "there" / "seed0").mkdir(parents=True)
    (tmp_path / "there" / "seed0" / "config.yaml").touch()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "rope").symlink_to(tmp_path / "there")
    assert newest_run([tmp_path / "here"]) == tmp_path / "here" / "rope" / "seed0"


@pytest.mark.parametrize("wrong", [None, {"weight": 1.0}, {"weight": torch.ones(9, dtype=torch.complex64)}])
def test_what_is_no_weight_is_refused(wrong, tmp_path):
    for weights in ({"weight": torch.ones(9)}, wrong):
        state = {"configuration": {}, "state_dict": weights}
        CheckpointIO().save_checkpoint(state, tmp_path / f"step-00000000{int(weights is wrong)}")
    newest, before = newest_first(tmp_path)
    assert list(_weights(before, {"layers": 1, "width": 9})) == ["weight"]
    with pytest.raises(UserError, match="it has no weights"):
        _weights(newest, {"layers": 1, "width": 9})


def test_an_intervention_is_as_it_was_at_the_step_of_the_checkpoint(tmp_path):
    config = composed("experiment=smoke", "pos=none", "intervention=offset_mask", "intervention.stop=10")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    objective = build(config, "objective", vocab_size=256)
    weights = {f"model.{name}": weight for name, weight in build_model(config, objective).state_dict().items()}
    for step, active in ((9, True), (10, False)):
        state = {"configuration": {}, "state_dict": weights}
        CheckpointIO().save_checkpoint(state, tmp_path / "checkpoints" / stem(step))
        assert bool(load(tmp_path).model.scheme.active) == active
