"""The comparison of runs on W&B's server, here its stand-in: printed, and saved there as a report."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from posenc.analysis.comparison import compare
from posenc.analysis.sweep import Sweep, read_folder
from posenc.analysis.wandb_runs import read_group
from posenc.report import formatting, sentences
from tests.conftest import ROOT, python
from tests.tracking.wandb_answers import StandIn
from tests.tracking.wandb_stand_in import answers_500, silent, stand_in

SWEEP = ("-m", "experiment=smoke", "trainer=cpu", "pos=rope,sinusoidal")
GROUP = "wandb://team/posenc/smoke"


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Iterator[tuple[StandIn, Path]]:
    """A server with the runs of a sweep, and the same on disk."""
    runs = tmp_path_factory.mktemp("sweep") / "runs"
    with stand_in() as server:
        result = python("train.py", f"runs={runs}", *SWEEP, env=server.environment)
        assert (result.returncode, len(server.runs)) == (0, 2), result.stderr
        yield server, runs / "smoke"


@pytest.fixture
def server(swept) -> Iterator[StandIn]:
    """Healthy again after each test."""
    yield swept[0]
    swept[0].fault = None


def command(program: str, server: StandIn, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**server.environment, "PYTHONPATH": str(ROOT / "src")}
    return python("-m", program, *arguments, cwd=tmp_path, env=environment)


def test_the_runs_on_the_server_are_those_on_disk(swept, monkeypatch):
    server, folder = swept
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    here, there = read_folder(folder), read_group("team", "posenc", "smoke", timeout=60)
    assert (there.notices, server.unknown) == ((), [])

    def by_name(sweep: Sweep) -> list:
        return sorted(sweep.runs, key=lambda run: run.name)

    for one, other in zip(by_name(here), by_name(there), strict=True):
        assert (one.scheme, one.seed, one.budget) == (other.scheme, other.seed, other.budget)
        for name, values in one.curve.items():
            np.testing.assert_allclose(values, other.curve[name])
        assert {key: one.summary[key] for key in other.summary} == other.summary
        assert {"bits_per_byte", "parameters", "versions", "hardware", "commit"} <= other.summary.keys()
    assert sentences.verdict(compare(here).panels[0]) == sentences.verdict(compare(there).panels[0])


def test_a_run_whose_rows_are_not_in_order_is_named_and_the_others_are_read(swept, monkeypatch):
    server, _ = swept
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    lines = next(iter(server.runs.values())).lines
    rows = [json.dumps({**json.loads(line), "seconds": 1.0}) for line in lines["wandb-history.jsonl"]]
    monkeypatch.setitem(lines, "wandb-history.jsonl", rows)
    sweep = read_group("team", "posenc", "smoke", timeout=60)
    (notice,) = sweep.notices
    assert notice.endswith("cannot be read: seconds must increase from validation to validation; left out")
    assert len(sweep.runs) == 1


def test_the_report_there_has_the_words_the_table_and_the_curves_by_scheme(swept, server, tmp_path):
    result = command("posenc.wandb_report", server, tmp_path, GROUP)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Report: {server.url}/team/posenc/reports/")
    (view,) = server.views
    assert (view["entityName"], view["projectName"], view["type"]) == ("team", "posenc", "runs")
    blocks = json.loads(view["spec"])["blocks"]
    text = "\n".join(block["content"] for block in blocks if block["type"] == "markdown-block")
    (panel,) = compare(read_folder(swept[1])).panels
    assert sentences.verdict(panel) in text
    for arm in panel.arms:
        assert f"| {arm.scheme} | {len(arm.runs)} | 0.03M | {formatting.interval(arm.loss)} |" in text
    (grid,) = (block["metadata"] for block in blocks if block["type"] == "panel-grid")
    (runs,) = grid["runSets"]
    assert runs["grouping"] == [{"section": "run", "name": "jobType"}]
    assert set(runs["filters"]["filters"][0]["value"]) == set(server.runs)
    drawn = [panel["config"]["metrics"] for panel in grid["panelBankSectionConfig"]["panels"]]
    assert drawn[0] == ["val/loss"]
    logged = set.union(*(set(row) for kept in server.runs.values() for row in kept.history))
    assert {name for names in drawn for name in names} <= logged


@pytest.mark.parametrize(("program", "fault"), [("posenc.report", answers_500), ("posenc.wandb_report", silent)])
def test_a_server_with_a_fault_is_given_up_in_a_sentence(program, fault, server, tmp_path):
    server.fault = fault
    result = command(program, server, tmp_path, GROUP, "--timeout", "1")
    assert result.returncode == 2
    assert "the W&B request for team/posenc failed: " in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_a_key_it_says_where_one_goes(server, tmp_path):
    environment = {"PYTHONPATH": str(ROOT / "src"), "WANDB_BASE_URL": server.url}
    result = python("-m", "posenc.wandb_report", GROUP, cwd=tmp_path, env=environment)
    assert result.returncode == 2
    assert "there is no API key: `wandb login`, or WANDB_API_KEY" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["wandb", "wandb_workspaces"])
def test_a_missing_package_is_named(missing, tmp_path):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from posenc.commands.wandb_report import main; main(['{GROUP}'])"
    )
    result = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "src")})
    assert result.returncode == 2
    needed = f"reading team/posenc from W&B needs the package {missing}, which is not installed: see requirements.txt"
    assert result.stderr == f"posenc wandb_report: {needed}\n"
