"""benchmarks/peers.py at its toy size. Which implementations are in the table depends on which are installed."""

import json
import statistics
from importlib.util import find_spec

import pytest

from tests.benchmarks.scripts import cells, module, script

TOY = ["--device", "cpu", "--threads", "1", "--context", "32", "--batch", "2", "--rounds", "3", "--steps", "1"]
MODULES = {
    "litgpt": "litgpt",
    "litgpt, chunked loss": "litgpt",
    "x-transformers, flash": "x_transformers",
    "x-transformers, plain": "x_transformers",
}


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return script("peers", *TOY, "--out", out), out


def test_every_implementation_is_in_the_table_or_its_skip_is_explained(causal):
    process, _ = causal
    assert process.returncode == 0, process.stderr
    table = cells(process.stdout)
    assert {"posenc", "posenc, whole logits", "posenc, SwiGLU"} <= table.keys()
    assert {"Llama, SDPA", "Llama, eager", "GPTNeoX, SDPA", "GPTNeoX, eager"} <= table.keys()
    for name, needed in MODULES.items():
        if find_spec(needed):
            assert name in table
        else:
            assert name not in table
            assert f"{name} skipped: {name.partition(',')[0]} is not installed" in process.stderr


def test_parameters_are_those_of_the_shape(causal):
    table = cells(causal[0].stdout)
    vocabulary, layers, width = 256, 4, 128
    norm_weights = (2 * layers + 1) * width
    parameters = f"{vocabulary * width + layers * 12 * width**2 + norm_weights:,}"
    assert table["posenc"][0] == table["posenc, whole logits"][0] == parameters
    assert table["posenc, SwiGLU"][0] == table["Llama, SDPA"][0]


def test_a_speed_up_is_the_median_over_rounds_with_its_range(causal):
    process, out = causal
    table = cells(process.stdout)
    rows = {row["implementation"]: row for row in json.loads((out / "peers.json").read_text())["rows"]}
    for row in rows.values():
        ours = rows[row["reference"]]["seconds"]
        ratios = [theirs / own for theirs, own in zip(row["seconds"], ours, strict=True)]
        assert len(ratios) == 3
        middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
        assert table[row["implementation"]][2] == f"{middle:.2f} ({least:.2f} to {most:.2f})"
        speed = statistics.median(32 * 2 / seconds for seconds in row["seconds"])
        assert table[row["implementation"]][1] == f"{speed:,.0f}"


def test_every_implementation_learns_its_batch(causal):
    rows = json.loads((causal[1] / "peers.json").read_text())["rows"]
    for row in rows:
        assert row["losses"][-1] < row["losses"][0] - 0.05, row["implementation"]


def test_the_page_states_command_hardware_and_versions(causal):
    page = (causal[1] / "peers.md").read_text()
    facts = ("python benchmarks/peers.py --device cpu", "1 thread", "torch 2.", "transformers 5.", "bf16", "batch 2")
    assert all(fact in page for fact in facts)
    assert page.strip() in causal[0].stdout


def test_masked_models_are_compared_with_roformer_and_only_selects():
    process = script("peers", *TOY, "--objective", "masked", "--precision", "fp32", "--only", "RoFormer")
    assert process.returncode == 0, process.stderr
    assert list(cells(process.stdout))[2:] == ["posenc", "RoFormer"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "huge"], "invalid choice: 'huge'"),
        (["--batch", "0"], "--batch: 0 must be at least 1"),
        (["--only", "gpt2"], "--only gpt2 matches none of posenc; RoFormer"),
    ],
)
def test_an_invalid_option_is_reported_in_one_sentence(arguments, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["peers.py", *TOY, "--objective", "masked", *arguments])
    with pytest.raises(SystemExit, match="2"):
        module("peers").arguments()
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
