"""What benchmarks/rotary.py compares, and what it compares them with."""

import math

import pytest
import torch

from tests.benchmarks.scripts import module

rotations = module("rotations")


def sample(dtype):
    """q, k and gradients at a length that bf16 cannot count to."""
    size, device = rotations.Size(1, 2, 300, 8), torch.device("cpu")
    return *rotations.vectors(size, dtype, device, seed=0), rotations.vectors(size, dtype, device, seed=1)


def test_positions_counted_in_bf16_show_in_the_error():
    q, k, gradients = sample(torch.bfloat16)
    floor = rotations.rounding_error(q, k, gradients)

    def turned_by(positions):
        angle = positions.float()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
        cos, sin = angle.cos(), angle.sin()

        def turn(x):
            first, second = x.float().chunk(2, dim=-1)
            return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)

        return lambda q, k: (turn(q), turn(k))

    assert rotations.largest_error(turned_by(torch.arange(300)), "half", q, k, gradients) < 1.1 * floor
    assert rotations.largest_error(turned_by(torch.arange(300).bfloat16()), "half", q, k, gradients) > 10 * floor


def test_one_that_turns_otherwise_would_be_left_out():
    half, interleaved = (one for one in rotations.CONTENDERS if one.package == "posenc")
    cpu = torch.device("cpu")
    assert rotations.fault_of(half, cpu, compiled=False) is None
    fault = rotations.fault_of(half._replace(layout=interleaved.layout), cpu, compiled=False)
    assert "from the rotation" in fault
    assert rotations.fault_of(half._replace(module="nowhere"), cpu, compiled=False) == "posenc is not installed"


def test_a_copy_of_q_and_k_both_ways_moves_each_byte_eight_times():
    """Read and written, q and k, forward and backward."""
    assert rotations.Size(2, 3, 5, 4).moved(torch.bfloat16) == 8 * 2 * (2 * 3 * 5 * 4)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_reference_turns_each_plane_by_position_times_theta(layout):
    x = torch.randn(1, 1, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = rotations.exact(x, layout)
    planes = {"half": [(0, 2), (1, 3)], "interleaved": [(0, 1), (2, 3)]}[layout]
    for position in range(5):
        for (first, second), theta in zip(planes, (1.0, 0.01), strict=True):
            a, b = x[0, 0, position, first].item(), x[0, 0, position, second].item()
            cos, sin = math.cos(position * theta), math.sin(position * theta)
            assert math.isclose(turned[0, 0, position, first].item(), a * cos - b * sin, abs_tol=1e-12)
            assert math.isclose(turned[0, 0, position, second].item(), a * sin + b * cos, abs_tol=1e-12)
    assert torch.allclose(rotations.exact(turned, layout, backward=True), x)
