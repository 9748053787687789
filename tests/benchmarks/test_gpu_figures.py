"""benchmarks/gpu.py and what it runs, at toy size: the figures mean nothing here."""

import json
import shlex

import pytest

from posenc.config.schema import check
from tests.benchmarks.scripts import cells, module, script
from tests.conftest import composed

PARTS = ["probe", "precision", "schemes", "loop", "claim_map", "together"]
"""Those whose scripts have no tests of their own, and one that trains."""


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """A folder with figures, the command that took them, and what it printed."""
    folder = tmp_path_factory.mktemp("gpu")
    line = ("--quick", "--runs", folder / "runs", "--parts", ",".join(PARTS))
    process = script("gpu", *line, "--out", folder / "out", timeout=400)
    assert process.returncode == 0, process.stderr
    return folder, line, process.stdout


def came_out(taken, part):
    return json.loads((taken[0] / "out" / "gpu.json").read_text())[part]["came_out"]


def test_every_part_is_taken_once_and_stands_on_the_page(taken):
    folder, line, printed = taken
    assert printed.splitlines() == [f"{part}: done" for part in PARTS]
    page = (folder / "out" / "gpu.md").read_text()
    assert all(f"## {part}: done" in page for part in PARTS)
    assert "python train.py runs=runs logger=csv experiment=smoke" in page
    assert "validation loss" in came_out(taken, "claim_map")


def test_figures_and_finished_runs_are_taken_over_and_not_taken_again(taken):
    folder, line, _ = taken
    new = ("--out", folder / "new", "--from", folder / "out", "--runs", folder / "new-runs")
    assert script("gpu", *line, *new).stdout.splitlines() == [f"{part}: there" for part in PARTS]
    (summary,) = folder.glob("new-runs/claim_map/**/summary.json")
    assert not (summary.parent / "checkpoints").exists()
    assert (summary.parent / "metrics.csv").exists()


def test_a_part_over_its_time_is_killed_and_one_without_a_text_says_so(taken):
    new = ("--out", taken[0] / "late", "--parts", "claim_map", "--runs", taken[0] / "late-runs")
    killed = script("gpu", "--quick", *new, "--budget", "1")
    assert (killed.returncode, killed.stdout) == (0, "claim_map: killed at its cap; the same command goes on\n")
    assert script("gpu", *new).stdout == "claim_map: needs --data, a text\n"


def test_every_run_that_is_asked_for_can_be_trained():
    lines = {line for part in module("gpu_parts").PARTS for line in part.commands if line.startswith("train.py")}
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line.format(runs="runs", data="README.md"))[1:]
        check(composed(*(word.partition(",")[0] for word in words if word != "-m")))


def test_the_parts_are_listed_and_an_unknown_one_is_refused():
    assert "test_gpu" in script("gpu", "--list").stdout
    assert "there is no nonsense" in script("gpu", "--parts", "nonsense").stderr


def test_every_scheme_s_step_is_set_against_the_sinusoid_s(taken):
    rows = cells(came_out(taken, "schemes"))
    assert rows["sinusoidal"][1] == "1.000"
    assert float(rows["rope pos.layout=interleaved"][1]) > 0


def test_the_loop_of_a_run_is_set_against_a_bare_one(taken):
    rows = cells(came_out(taken, "loop"))
    phases = [float(row[0]) for name, row in rows.items() if name.startswith("of that")]
    assert len(phases) == 4
    assert float(rows["bare loop"][0]) > 0
    assert "times the bare loop's time" in came_out(taken, "loop")


def test_runs_at_a_time_have_the_curves_they_have_alone(taken):
    assert set(cells(came_out(taken, "together"))) >= {"1", "2"}
    assert "2 of 2 curves are those of the run alone" in came_out(taken, "together")


def test_bf16_is_held_to_what_fp32_computes(taken, monkeypatch, capsys):
    assert "All 2 are within it." in came_out(taken, "precision")
    precision = module("precision")
    monkeypatch.setattr(precision, "GRADIENT", 0.001)  # less than bf16 is off
    monkeypatch.setattr("sys.argv", ["precision", "--device", "cpu", "--lengths", "8", "--only", "pos=none"])
    assert precision.main() == 1
    assert "Further off: pos=none" in capsys.readouterr().out
