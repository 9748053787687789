"""The optimiser has the hyperparameters of its configuration."""

import torch

from posenc.training.optim import AdamW


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
