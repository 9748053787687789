"""benchmarks/rotary.py at its toy size, and what it compares with."""

import json
import math
import statistics

import pytest
import torch

from tests.benchmarks.scripts import cells, module, script

rotary = module("rotary")

TOY = ["--device", "cpu", "--threads", "1", "--rounds", "3", "--steps", "1", "--sizes", "1x2x16x8", "2x2x300x8"]
ROWS = ["copy", "float64, rounded", "posenc, half", "posenc, interleaved", "transformers (Llama)"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    process = script("rotary", *TOY, "--out", out)
    assert process.returncode == 0, process.stderr
    return process, json.loads((out / "rotary.json").read_text())["results"]


def test_every_contender_is_in_the_table_or_in_a_sentence(result):
    process, _ = result
    table = cells(process.stdout)
    assert set(ROWS) <= table.keys()
    assert "liger-kernel is left out: it does not run on cpu" in process.stderr
    torched = "rotary-embedding-torch"
    assert (torched in table) != (f"{torched} is left out: {torched} is not installed" in process.stderr)


def test_a_share_is_the_copy_s_time_over_the_contender_s(result):
    process, figures = result
    shown = cells(process.stdout.partition("fp32:")[2])
    for column, size in enumerate(("1x2x16x8", "2x2x300x8"), start=1):
        rows = {row["contender"]: row for row in figures["fp32"][size]}
        copy = rows["copy"]["seconds"]
        batch, heads, length, head_dim = map(int, size.split("x"))
        moved = 4 * 8 * batch * heads * length * head_dim
        assert shown["copy"][column] == f"{moved / statistics.median(copy) / 1e9:.1f} GB/s"
        for name in ROWS[2:]:
            shares = [whole / own for whole, own in zip(copy, rows[name]["seconds"], strict=True)]
            expected = f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
            assert shown[name][column] == expected


def test_our_rotation_is_exact_to_the_rounding_of_its_result(result):
    _, figures = result
    for precision in ("bf16", "fp32"):
        for every in figures[precision].values():
            errors = {row["contender"]: row["error"] for row in every}
            for layout in ("half", "interleaved"):
                assert errors["float64, rounded"] <= errors[f"posenc, {layout}"] < 4 * errors["float64, rounded"]


def sample(dtype):
    """q, k and gradients at a length that bf16 cannot count to."""
    size, device = rotary.Size(1, 2, 300, 8), torch.device("cpu")
    return *rotary.vectors(size, dtype, device, seed=0), rotary.vectors(size, dtype, device, seed=1)


def test_positions_counted_in_bf16_show_in_the_error():
    q, k, gradients = sample(torch.bfloat16)
    floor = rotary.rounding_error(q, k, gradients)
    half = rotary.LAYOUTS["half"]

    def turned_by(positions):
        angle = positions.float()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
        cos, sin = angle.cos(), angle.sin()

        def turn(x):
            first, second = x.float().chunk(2, dim=-1)
            return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)

        return lambda q, k: (turn(q), turn(k))

    assert rotary.largest_error(turned_by(torch.arange(300)), half, q, k, gradients) < 1.1 * floor
    assert rotary.largest_error(turned_by(torch.arange(300).bfloat16()), half, q, k, gradients) > 10 * floor


def test_one_that_turns_otherwise_would_be_left_out():
    half, interleaved = (one for one in rotary.CONTENDERS if one.package == "posenc")
    cpu = torch.device("cpu")
    assert rotary.fault_of(half, cpu, compiled=False) is None
    fault = rotary.fault_of(half._replace(layout=interleaved.layout), cpu, compiled=False)
    assert "from the rotation" in fault
    assert rotary.fault_of(half._replace(module="nowhere"), cpu, compiled=False) == "posenc is not installed"


def test_a_copy_of_q_and_k_both_ways_moves_each_byte_eight_times():
    """Read and written, q and k, forward and backward."""
    assert rotary.Size(2, 3, 5, 4).moved(torch.bfloat16) == 8 * 2 * (2 * 3 * 5 * 4)


@pytest.mark.parametrize("size", ["16x4x256", "axbxcxd", "0x4x256x32", "1x4x256x33"])
def test_a_wrong_size_is_said_in_one_sentence(size):
    process = script("rotary", "--sizes", size)
    assert process.returncode == 2
    assert f"--sizes {size} must be like 16x4x256x32, with an even head dimension" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_reference_turns_each_plane_by_position_times_theta(layout):
    x = torch.randn(1, 1, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = rotary.exact(x, rotary.LAYOUTS[layout])
    planes = {"half": [(0, 2), (1, 3)], "interleaved": [(0, 1), (2, 3)]}[layout]
    for position in range(5):
        for (first, second), theta in zip(planes, (1.0, 0.01), strict=True):
            a, b = x[0, 0, position, first].item(), x[0, 0, position, second].item()
            cos, sin = math.cos(position * theta), math.sin(position * theta)
            assert math.isclose(turned[0, 0, position, first].item(), a * cos - b * sin, abs_tol=1e-12)
            assert math.isclose(turned[0, 0, position, second].item(), a * sin + b * cos, abs_tol=1e-12)
    assert torch.allclose(rotary.exact(turned, rotary.LAYOUTS[layout], backward=True), x)
