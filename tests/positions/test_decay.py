"""Powers are exact over the whole reach."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions.decay import DecayTable

ZETA = torch.tensor([2 / 7, 0.5, 0.99], dtype=torch.float64)


@given(st.data(), st.sampled_from([(1.0, 30), (512.0, 1), (512.0, 16_430), (10_000.0, 300_000)]))
def test_powers_agree_with_float64_at_any_offset_in_reach(data, settings):
    scale_base, reach = settings
    offsets = torch.tensor(data.draw(st.lists(st.integers(-reach, reach), min_size=1, max_size=20)))
    powers = DecayTable(ZETA, scale_base, reach)(offsets)
    exact = ZETA ** (offsets[:, None].double() / scale_base)
    assert powers.dtype == torch.float32
    assert (powers.double() / exact - 1).abs().max() < 3e-7


@pytest.mark.parametrize("reach", [0, 1, 2, 3, 99, 100])
def test_both_ends_are_in_reach(reach):
    powers = DecayTable(ZETA, 10.0, reach)(torch.tensor([-reach, reach]))
    assert torch.allclose(powers.prod(0), torch.ones(3))
