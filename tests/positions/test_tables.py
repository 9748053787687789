"""Angles and powers are exact, everywhere and in every precision the model is cast to."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions.tables import AngleTable, ExactTable, frequencies


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


POSITIONS = st.lists(st.integers(0, 2**20 - 1), min_size=1, max_size=50).map(torch.tensor)


def exact(positions: torch.Tensor, size: int, base: float) -> torch.Tensor:
    return positions.double()[:, None] * base ** (-torch.arange(0, size, 2).double() / size)


@given(POSITIONS, st.sampled_from([2, 16, 64, 128]), st.sampled_from([100.0, 10_000.0, 500_000.0]))
def test_cos_and_sin_agree_with_float64_at_any_position(positions, size, base):
    cos, sin = AngleTable(frequencies(size, base))(positions)
    angles = exact(positions, size, base)
    assert (cos - angles.cos()).abs().max() < 1e-6
    assert (sin - angles.sin()).abs().max() < 1e-6


@pytest.mark.parametrize("cast", [torch.nn.Module.half, torch.nn.Module.bfloat16, torch.nn.Module.double])
def test_casting_the_model_does_not_round_the_angles(cast):
    table = AngleTable(frequencies(64, 10_000.0))
    positions = torch.tensor([0, 1, 1023, 1024, 999_999])
    before = table(positions)
    after = cast(table)(positions)
    assert all(torch.equal(a, b) and b.dtype == torch.float32 for a, b in zip(before, after, strict=True))


def test_autocast_does_not_round_the_angles():
    table = AngleTable(frequencies(64, 10_000.0))
    positions = torch.arange(300)
    with torch.autocast("cpu", torch.bfloat16):
        cos, _ = table(positions)
    assert torch.equal(cos, table(positions)[0])


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan")])
def test_a_base_that_is_not_positive_is_refused(base):
    with pytest.raises(ValueError, match="base=.* must be a positive number"):
        frequencies(8, base)
