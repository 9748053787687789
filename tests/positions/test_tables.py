"""Fixed tables keep their numbers, whatever happens to the model that holds them."""

import copy

import pytest
import torch

from posenc.positions.tables import ExactTable


@pytest.mark.parametrize("cast", [torch.nn.Module.half, torch.nn.Module.bfloat16, torch.nn.Module.double])
def test_a_table_is_not_cast(cast):
    exact = torch.rand(100, dtype=torch.float64)
    model = cast(torch.nn.Sequential(torch.nn.Linear(2, 2), ExactTable(exact)))
    assert model[0].weight.dtype != torch.float32
    assert torch.equal(model[1].table, exact.float())


def test_a_table_follows_the_model_to_another_device():
    assert ExactTable(torch.rand(3)).to("meta", torch.bfloat16).table.device.type == "meta"


def test_a_table_is_in_no_checkpoint_but_in_every_copy():
    table = ExactTable(torch.rand(3))
    assert not table.state_dict()
    assert torch.equal(copy.deepcopy(table).table, table.table)
