import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment, composed


def roofline(*arguments: str) -> str:
    command = [sys.executable, "benchmarks/roofline.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_gpu_the_floor_is_counted_and_the_rest_is_said_to_need_one(tmp_path: Path):
    printed = roofline("--chip", "h200", "h100", "--measure", "--out", str(tmp_path))
    assert "need a GPU" in printed
    assert (tmp_path / "roofline-base.md").read_text().count("| AdamW ") == 2
    h200, h100 = json.loads((tmp_path / "roofline-base.json").read_text())["chips"]
    for chip in (h200, h100):
        assert chip["step"]["floor_ms"] == pytest.approx(sum(part["floor_ms"] for part in chip["parts"]))
        assert all(part["floor_ms"] >= max(part["arithmetic_ms"], part["memory_ms"]) for part in chip["parts"])
    # The same arithmetic with slower memory: what is bound by arithmetic takes as long, what is not takes longer.
    assert h100["step"]["floor_ms"] > h200["step"]["floor_ms"]
    for there, here in zip(h200["parts"], h100["parts"], strict=True):
        assert (there["floor_ms"] == here["floor_ms"]) == (here["bound"] == "matmul")


def test_on_a_cpu_every_part_of_a_real_step_is_found(tmp_path: Path):
    toy = ("--context", "32", "--batch", "2", "--rounds", "2", "--steps", "1", "--eager")
    printed = roofline("--model", "tiny", "--measure", "--device", "cpu", *toy, "--out", str(tmp_path))
    assert "times the floor" in printed
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
