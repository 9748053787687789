"""benchmarks/peers.py at its toy size. Which peers are in the table depends on which are installed."""

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


def test_every_contender_is_in_the_table_or_in_a_sentence(causal):
    process, _ = causal
    assert process.returncode == 0, process.stderr
    table = cells(process.stdout)
    always = {
        "posenc",
        "posenc, whole logits",
        "posenc, SwiGLU",
        "Llama, SDPA",
        "Llama, eager",
        "GPTNeoX, SDPA",
        "GPTNeoX, eager",
    }
    assert always <= table.keys()
    for name, needed in MODULES.items():
        if find_spec(needed):
            assert name in table
        else:
            assert name not in table
            assert f"{name} is left out: {name.partition(',')[0]} is not installed" in process.stderr


def test_parameters_are_those_of_the_shape(causal):
    table = cells(causal[0].stdout)
    vocabulary, layers, width = 256, 4, 128
    gains = (2 * layers + 1) * width
    assert (
        table["posenc"][0]
        == table["posenc, whole logits"][0]
        == f"{vocabulary * width + layers * 12 * width**2 + gains:,}"
    )
    assert table["posenc, SwiGLU"][0] == table["Llama, SDPA"][0]


def test_a_ratio_is_the_median_over_rounds_with_the_smallest_and_the_largest(causal):
    process, out = causal
    table = cells(process.stdout)
    rows = {row["contender"]: row for row in json.loads((out / "peers.json").read_text())["rows"]}
    for row in rows.values():
        ours = rows[row["beside"]]["seconds"]
        ratios = [theirs / own for theirs, own in zip(row["seconds"], ours, strict=True)]
        assert len(ratios) == 3
        middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
        assert table[row["contender"]][2] == f"{middle:.2f} ({least:.2f} to {most:.2f})"
        speed = statistics.median(32 * 2 / seconds for seconds in row["seconds"])
        assert table[row["contender"]][1] == f"{speed:,.0f}"


def test_every_contender_learns_its_batch(causal):
    rows = json.loads((causal[1] / "peers.json").read_text())["rows"]
    for row in rows:
        assert row["losses"][-1] < row["losses"][0] - 0.05, row["contender"]


def test_the_page_says_the_command_the_hardware_and_the_versions(causal):
    page = (causal[1] / "peers.md").read_text()
    for said in (
        "python benchmarks/peers.py --device cpu",
        "1 thread",
        "torch 2.",
        "transformers 5.",
        "bf16",
        "batch 2",
    ):
        assert said in page
    assert page.strip() in causal[0].stdout


def test_masked_models_stand_beside_roformer_and_only_is_obeyed():
    process = script("peers", *TOY, "--objective", "masked", "--precision", "fp32", "--only", "RoFormer")
    assert process.returncode == 0, process.stderr
    assert list(cells(process.stdout))[2:] == ["posenc", "RoFormer"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "huge"], "invalid choice: 'huge'"),
        (["--batch", "0"], "--batch 0 must be at least 1"),
        (["--only", "gpt2"], "--only gpt2 is no contender; there are posenc; RoFormer"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_in_one_sentence(arguments, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["peers.py", *TOY, "--objective", "masked", *arguments])
    with pytest.raises(SystemExit, match="2"):
        module("peers").arguments()
    assert sentence in capsys.readouterr().err.splitlines()[-1]
