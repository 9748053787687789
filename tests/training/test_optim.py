"""The optimiser has the hyperparameters of its configuration."""

from dataclasses import asdict

import pytest
import torch

from posenc.training.optim import AdamW
from tests.conftest import composed


def test_adamw_has_its_learning_rate_and_betas_and_decays_matrices_only():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    model.register_parameter("angles", torch.nn.Parameter(torch.zeros(2, 2, 2)))  # as of PoPE
    matrices, others = AdamW(lr=0.02, betas=(0.7, 0.9), weight_decay=0.3).build(model).param_groups
    assert [(group["lr"], group["betas"]) for group in (matrices, others)] == [(0.02, (0.7, 0.9))] * 2
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert [*map(id, matrices["params"])] == [id(model[0].weight)]
    assert len(others["params"]) == 4


def test_betas_may_be_integers():
    for group in AdamW(lr=0.02, betas=(0, 0.9)).build(torch.nn.Linear(4, 4)).param_groups:
        assert group["betas"] == (0.0, 0.9)


@pytest.mark.parametrize("experiment", ["kjv_tiny", "claim_map"])
def test_the_optimiser_of_the_results_is_nanogpt_s(experiment):
    """What a study's experiment has, no key names: runs with other values would be rows of its backbone."""
    default = {"lr": 0.003, "betas": [0.9, 0.95], "weight_decay": 0.1, "clip": 1.0}
    assert composed(f"experiment={experiment}")["optim"] == {"_target_": "posenc.training.optim.AdamW", **default}
    assert asdict(AdamW(0.003)) == {**default, "betas": (0.9, 0.95)}
