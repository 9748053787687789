"""benchmarks/rotary.py at its toy size."""

import json
import statistics

import pytest

from tests.benchmarks.scripts import cells, module, script

TOY = ["--device", "cpu", "--threads", "1", "--rounds", "3", "--steps", "1", "--sizes", "1x2x16x8", "2x2x300x8"]
ROWS = ["copy", "float64, rounded", "posenc, half", "posenc, interleaved", "transformers (Llama)"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    process = script("rotary", *TOY, "--out", out)
    assert process.returncode == 0, process.stderr
    return process, json.loads((out / "rotary.json").read_text())["results"]


def test_every_implementation_is_in_the_table_or_its_skip_is_explained(result):
    process, _ = result
    table = cells(process.stdout)
    assert set(ROWS) <= table.keys()
    assert "liger-kernel skipped: it does not support cpu" in process.stderr
    package = "rotary-embedding-torch"
    assert (package in table) != (f"{package} skipped: {package} is not installed" in process.stderr)


def test_relative_bandwidth_is_the_time_of_a_copy_over_that_of_the_rotation(result):
    process, figures = result
    shown = cells(process.stdout.partition("fp32:")[2])
    for column, size in enumerate(("1x2x16x8", "2x2x300x8"), start=1):
        rows = {row["implementation"]: row for row in figures["fp32"][size]}
        copy = rows["copy"]["seconds"]
        batch, heads, length, head_dim = map(int, size.split("x"))
        moved = 4 * 8 * batch * heads * length * head_dim
        assert shown["copy"][column] == f"{moved / statistics.median(copy) / 1e9:.1f} GB/s"
        for name in ROWS[2:]:
            ratios = [other / own for other, own in zip(copy, rows[name]["seconds"], strict=True)]
            expected = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            assert shown[name][column] == expected


def test_our_rotation_is_exact_to_the_rounding_of_its_result(result):
    _, figures = result
    for precision in ("bf16", "fp32"):
        for every in figures[precision].values():
            errors = {row["implementation"]: row["error"] for row in every}
            for layout in ("half", "interleaved"):
                assert errors["float64, rounded"] <= errors[f"posenc, {layout}"] < 4 * errors["float64, rounded"]


@pytest.mark.parametrize("size", ["16x4x256", "axbxcxd", "0x4x256x32", "1x4x256x33"])
def test_an_invalid_size_is_reported_in_one_sentence(size, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["rotary.py", "--sizes", size])
    with pytest.raises(SystemExit, match="2"):
        module("rotary").arguments()
    assert f"--sizes: {size} must be like 16x4x256x32, with an even head dimension" in capsys.readouterr().err
