"""The rotary implementations of benchmarks/rotary.py, and their reference."""

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
    bound = rotations.rounding_error(q, k, gradients)

    def rotation_by(positions):
        angle = positions.float()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
        cos, sin = angle.cos(), angle.sin()

        def rotate(x):
            first, second = x.float().chunk(2, dim=-1)
            return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)

        return lambda q, k: (rotate(q), rotate(k))

    assert rotations.largest_error(rotation_by(torch.arange(300)), "half", q, k, gradients) < 1.1 * bound
    assert rotations.largest_error(rotation_by(torch.arange(300).bfloat16()), "half", q, k, gradients) > 10 * bound


def test_an_implementation_that_rotates_differently_is_skipped():
    half, interleaved = (one for one in rotations.IMPLEMENTATIONS if one.package == "posenc")
    cpu = torch.device("cpu")
    assert rotations.reason_to_skip(half, cpu, compiled=False) is None
    reason = rotations.reason_to_skip(half._replace(layout=interleaved.layout), cpu, compiled=False)
    assert "its error in fp32 is" in reason
    assert (
        rotations.reason_to_skip(half._replace(package="no-where"), cpu, compiled=False) == "no-where is not installed"
    )


def test_copying_q_and_k_forward_and_backward_moves_each_byte_eight_times():
    """Read and written, q and k, forward and backward."""
    assert rotations.Size(2, 3, 5, 4).bytes_moved(torch.bfloat16) == 8 * 2 * (2 * 3 * 5 * 4)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_reference_rotates_each_plane_by_position_times_theta(layout):
    x = torch.randn(1, 1, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rotated = rotations.reference(x, layout)
    planes = {"half": [(0, 2), (1, 3)], "interleaved": [(0, 1), (2, 3)]}[layout]
    for position in range(5):
        for (first, second), theta in zip(planes, (1.0, 0.01), strict=True):
            a, b = x[0, 0, position, first].item(), x[0, 0, position, second].item()
            cos, sin = math.cos(position * theta), math.sin(position * theta)
            assert math.isclose(rotated[0, 0, position, first].item(), a * cos - b * sin, abs_tol=1e-12)
            assert math.isclose(rotated[0, 0, position, second].item(), a * sin + b * cos, abs_tol=1e-12)
    assert torch.allclose(rotations.reference(rotated, layout, backward=True), x)
