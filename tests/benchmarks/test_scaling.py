"""benchmarks/scaling.py at toy size."""

import json
import subprocess
from pathlib import Path
from statistics import median
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.scripts import module, script
from tests.conftest import fresh_python

crossover = module("scaling_results").crossover

POINTS = {"length": (32, 64, 128), "width": (16, 32), "batch": (1, 4)}
VARIANTS = {"length": {"rope", "favor", "elu"}, "width": {"none", "rope"}, "batch": {"none", "rope"}}


def scaling(*arguments: object) -> subprocess.CompletedProcess[str]:
    return script("scaling", *arguments)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Path, str]:
    """The folder of the results and what was printed."""
    folder = tmp_path_factory.mktemp("scaling") / "out"
    result = scaling("--device", "cpu", "--quick", "--rounds", 2, "--out", folder)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def axes(folder: Path) -> dict[str, list[dict]]:
    return json.loads((folder / "scaling.json").read_text())["axes"]


def table(printed: str, axis: str) -> list[list[str]]:
    """The cells of an axis's table, without its head."""
    lines = printed.partition(f"## Tokens/s over {axis} ")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return rows[2:]


def test_every_variant_is_timed_in_every_round_at_every_point(measured):
    for axis, points in axes(measured[0]).items():
        assert tuple(point[axis] for point in points) == POINTS[axis]
        for point in points:
            assert point["tokens_per_s"].keys() == VARIANTS[axis]
            assert all(len(rounds) == 2 and min(rounds) > 0 for rounds in point["tokens_per_s"].values())


def test_a_step_has_as_many_tokens_at_every_length_and_width(measured):
    for axis in ("length", "width"):
        assert {point["length"] * point["batch"] for point in axes(measured[0])[axis]} == {128}


@pytest.mark.parametrize("axis", POINTS)
def test_the_table_has_the_medians_of_the_rounds_and_of_their_ratios(axis, measured):
    folder, printed = measured
    first, other = ("rope", "favor") if axis == "length" else ("none", "rope")
    rows, points = table(printed, axis), axes(folder)[axis]
    assert len(rows) == len(points)
    for row, point in zip(rows, points, strict=True):
        speeds = point["tokens_per_s"]
        ratios = [mine / theirs for mine, theirs in zip(speeds[other], speeds[first], strict=True)]
        assert row[:3] == [str(point[axis]), str(point["length"] * point["batch"]), f"{median(speeds[first]):,.0f}"]
        assert f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" in row


def test_what_is_printed_is_what_is_written(measured):
    folder, printed = measured
    assert (folder / "scaling.md").read_text() == printed.removesuffix("\n")


def test_the_figure_is_drawn_from_the_results_alone_and_without_torch(measured, tmp_path):
    code = (
        "import runpy, sys\n"
        "sys.path.insert(0, 'benchmarks')\n"
        "runpy.run_path('benchmarks/scaling.py', run_name='__main__')\n"
        "assert 'torch' not in sys.modules"
    )
    folder = measured[0]
    result = fresh_python("-c", code, "--draw", folder / "scaling.json", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["scaling.png"]
    assert (tmp_path / "scaling.png").read_bytes() == (folder / "scaling.png").read_bytes()
    assert result.stdout == measured[1]


def test_points_that_take_too_long_are_skipped_and_named(tmp_path):
    result = scaling("--device", "cpu", "--quick", "--axes", "length", "--seconds", 0, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    for title in ("softmax", "FAVOR+", "elu + 1"):
        assert f"- {title} is skipped from length 32 on: a step takes " in result.stdout
    assert [row[2:] for row in table(result.stdout, "length")] == [["–"] * 5] * 3
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--draw", "nowhere.json"], "--draw=nowhere.json cannot be read as results of this script"),
        (["--draw", "README.md"], "--draw=README.md cannot be read as results of this script"),
        (["--rounds", "0"], "--rounds: 0 must be at least 1"),
        pytest.param(
            ["--device", "cuda"],
            "--device: this machine has no CUDA GPU; use auto or cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has one"),
        ),
    ],
)
def test_an_invalid_option_is_reported_in_one_sentence(arguments, sentence):
    result = scaling("--quick", *arguments)
    assert sentence in result.stderr
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


@given(st.floats(300, 8000), st.floats(0.1, 3))
def test_a_ratio_that_is_a_power_of_the_size_crosses_one_where_the_power_does(where, power):
    sizes = [256, 512, 1024, 2048, 4096, 8192]
    assert crossover(sizes, [(size / where) ** power for size in sizes]) == pytest.approx(where)


def test_a_crossing_is_the_last_one_and_only_where_the_ratio_stays_above_one():
    assert crossover([1, 2, 4, 8], [0.5, 2, 0.5, 2]) == pytest.approx(32**0.5)
    assert crossover([1, 2, 4], [0.5, 2, 0.9]) is None
    assert crossover([1, 2, 4], [1.1, 2, 3]) is None
    assert crossover([], []) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "it fails (CUDA out of memory)"),
        (torch._dynamo.exc.BackendCompilerFailed(print, ValueError("no kernel"), None), "it fails (backend="),
    ],
)
def test_a_point_that_runs_out_of_memory_or_does_not_compile_is_skipped_with_the_reason(error, reason):
    benchmark = Mock(section=Mock(side_effect=error))
    assert module("scaling").Benchmark.section_or_reason(benchmark, "rope", None).startswith(reason)
