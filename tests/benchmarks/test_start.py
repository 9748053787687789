import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

TRAINED = ("run's folder written", "Lightning set up", "first step done", "command ended")


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/start.py", *arguments, "--rounds", "1", "--loggers", "csv"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=clean_environment())


def test_a_run_is_watched_to_its_first_step_and_its_seconds_are_all_accounted_for(tmp_path: Path):
    done = start("experiment=smoke", "trainer=cpu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "start.md").read_text() == done.stdout
    numbers = json.loads((tmp_path / "start.json").read_text())
    assert set(numbers["seconds"]) == {"logger=csv", "--help", "--cfg job"}
    (moments,) = numbers["seconds"]["logger=csv"]
    assert list(moments) == sorted(moments, key=lambda event: moments[event]) == list(TRAINED)
    (phases,) = numbers["phases"]["logger=csv"]
    assert {"import torch", "import lightning", "data", "model", "trainer", "first step"} <= phases.keys()
    for own, whole in phases.values():
        assert whole >= own - 1e-6 >= -2e-6
    # What Lightning's import brings in is more than its own code, and torch is there before it.
    assert phases["import lightning"][1] > phases["import torchmetrics"][1] > 0


def test_a_run_that_fails_ends_the_measurement_with_what_it_said():
    done = start("experiment=smoke", "pos=roope")
    assert done.returncode != 0
    assert "pos=roope is not a choice" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", ["start", "roofline"])
def test_help_says_what_the_script_is_for(script: str):
    command = [sys.executable, f"benchmarks/{script}.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0
    assert f"python benchmarks/{script}.py" in done.stdout
