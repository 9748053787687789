import json
from pathlib import Path

import pytest

from tests.benchmarks.scripts import script
from tests.conftest import composed


def roofline(*arguments: str) -> str:
    done = script("roofline", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_gpu_the_lower_bound_is_counted_and_the_rest_needs_one(tmp_path: Path):
    printed = roofline("--chip", "h200", "h100", "--measure", "--out", str(tmp_path))
    assert "need a GPU" in printed
    assert (tmp_path / "roofline-base.md").read_text().count("| AdamW ") == 2
    h200, h100 = json.loads((tmp_path / "roofline-base.json").read_text())["chips"]
    for chip in (h200, h100):
        assert chip["step"]["lower_bound_ms"] == pytest.approx(sum(part["lower_bound_ms"] for part in chip["parts"]))
        assert all(part["lower_bound_ms"] >= max(part["arithmetic_ms"], part["memory_ms"]) for part in chip["parts"])
    # The H100 has the same peak FLOP/s and slower memory: parts bound by FLOPs take as long, others longer.
    assert h100["step"]["lower_bound_ms"] > h200["step"]["lower_bound_ms"]
    for first, second in zip(h200["parts"], h100["parts"], strict=True):
        assert (first["lower_bound_ms"] == second["lower_bound_ms"]) == (second["bound"] == "matmul")


def test_on_a_cpu_every_part_of_a_step_is_found_in_the_profile(tmp_path: Path):
    toy = ("--context", "32", "--batch", "2", "--rounds", "2", "--steps", "1", "--eager")
    printed = roofline("--model", "tiny", "--measure", "--device", "cpu", *toy, "--out", str(tmp_path))
    assert "times the lower bound" in printed
    numbers = json.loads((tmp_path / "roofline-tiny.json").read_text())
    (chip,) = numbers["chips"]
    assert {part["part"] for part in chip["parts"] if part["measured_ms"] == 0} == set()
    assert len(numbers["measured"]["rounds_ms"]) == 2


def test_the_sizes_are_those_of_the_default_experiment(tmp_path: Path):
    roofline("--model", "tiny", "--out", str(tmp_path))
    shape = json.loads((tmp_path / "roofline-tiny.json").read_text())["shape"]
    config = composed("model=tiny")
    sizes = {key: config["model"][key] for key in ("layers", "width", "heads")}
    assert shape == {**sizes, "vocab_size": 256, "context": config["context"], "batch_size": config["batch_size"]}
