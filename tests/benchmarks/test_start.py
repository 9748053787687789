"""benchmarks/start.py at toy size, and the help of all scripts."""

import json
import subprocess

import pytest

from tests import warm
from tests.benchmarks.scripts import module, script
from tests.conftest import ROOT

EVENTS = ("run directory created", "Lightning initialised", "first step done", "process exited")
FILES = sorted((ROOT / "benchmarks").glob("*.py"))
SCRIPTS = [file.stem for file in FILES if "Parser(__doc__)" in file.read_text()]
ROUND = ("--rounds", "1", "--loggers", "csv")


@pytest.fixture
def untraced_in_copies(monkeypatch):
    """Runs train.py in copies of a warm Python, unless its imports are traced."""
    fresh, copies = subprocess.Popen, warm.python()

    def start(command, cwd, env, **files):
        copied = command[1] == "train.py"
        return copies.start(*command[1:], cwd=cwd, env=env) if copied else fresh(command, cwd=cwd, env=env, **files)

    monkeypatch.setattr(subprocess, "Popen", start)


@pytest.mark.usefixtures("untraced_in_copies")
def test_a_run_is_timed_to_its_first_step_and_so_are_its_imports(tmp_path, monkeypatch, capsys):
    arguments = ("experiment=smoke", "trainer=cpu", *ROUND, "--out", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["start.py", *arguments])
    module("start").main()
    printed = capsys.readouterr().out
    assert (tmp_path / "start.md").read_text() == printed
    (part,) = (one for one in module("gpu_parts").PARTS if one.name == "start")
    assert module("gpu_page").came_out(part, printed)
    numbers = json.loads((tmp_path / "start.json").read_text())
    assert set(numbers["seconds"]) == {"logger=csv", "--help", "--cfg job"}
    (times,) = numbers["seconds"]["logger=csv"]
    assert list(times) == sorted(times, key=lambda event: times[event]) == list(EVENTS)
    (imports,) = numbers["imports"]
    assert {"torch", "lightning", "posenc", "hydra"} <= imports.keys()
    assert imports["torch"] > imports["lightning"] > 0  # without torch, which lightning imports


def test_a_failed_run_ends_the_benchmark_with_its_message():
    done = script("start", "experiment=smoke", "pos=roope", *ROUND)
    assert done.returncode != 0
    assert "pos=roope is not a choice" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_states_the_purpose_and_the_command(name: str):
    done = script(name, "--help")
    assert done.returncode == 0
    assert f"python benchmarks/{name}.py" in done.stdout
