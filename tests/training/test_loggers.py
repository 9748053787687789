"""W&B never stops a run, never asks, and holds the curve of metrics.csv."""

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from posenc.analysis import words
from posenc.analysis.comparison import compare
from posenc.analysis.runs import read_folder
from posenc.analysis.wandb_runs import read_group
from posenc.directory import read_metrics
from tests.conftest import ROOT, clean_environment, only

SMOKE = ("experiment=smoke", "trainer=cpu")


def records(run: Path) -> list[dict]:
    """Every record of the one offline run in a run directory, as W&B's own reader gives them."""
    file = only(only(run / "wandb", "offline-run-*"), "*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_without_a_key_a_sweep_is_logged_offline_one_run_each_with_the_right_curve(train, tmp_path):
    result = train("-m", "pos=none,rope", *SMOKE, "logger.tags=[trial]")
    assert result.returncode == 0, result.stderr
    assert "wandb leet" in result.stdout
    assert "wandb sync" in result.stdout
    ids = set()
    for scheme in ("none", "rope"):
        run = only(tmp_path / "runs" / "smoke" / scheme)
        found = records(run)
        (meta,) = [record["run"] for record in found if record["type"] == "run"]
        assert (meta["run_group"], meta["job_type"], meta["tags"]) == ("smoke", scheme, ["trial"])
        assert meta["config"]["update"]["model"]["width"] == 32
        ids.add(meta["run_id"])
        metrics = [record["metric"] for record in found if record["type"] == "metric"]
        assert {"step", "tokens"} <= {metric.get("name") for metric in metrics}
        assert {metric["step_metric"] for metric in metrics if "step_metric" in metric} == {"step"}
        history = [record["history"]["item"] for record in found if record["type"] == "history"]
        logged = [row for row in history if "train_loss" in row]
        written = read_metrics(run / "metrics.csv")
        assert len(logged) == len(written) == 4
        for row, reference in zip(logged, written, strict=True):
            for column, text in reference.items():
                assert row.get(column) == (float(text) if text else None)
        assert any("sample._type" in row for row in history)
    assert len(ids) == 2


def test_a_resumed_run_goes_on_under_one_id(train, tmp_path):
    assert train(*SMOKE, "steps=40", "checkpoint_seconds=0").returncode == 0
    run = only(tmp_path / "runs" / "smoke" / "rope")
    (run / "summary.json").unlink()  # as if it had been killed just before the end
    only(run / "checkpoints", "step-000000040-*.ckpt").unlink()
    assert "Resuming from step-000000030" in train(*SMOKE, "steps=40").stdout
    segments = list((run / "wandb").glob("offline-run-*"))
    assert len({segment.name.rpartition("-")[2] for segment in segments}) == 1
    assert len(segments) == 2


def test_with_a_key_and_no_network_the_run_goes_on_offline_within_a_bounded_wait(train):
    begun = time.monotonic()
    away = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    result = train(*SMOKE, "logger.timeout=3", env=away)
    assert result.returncode == 0, result.stderr
    assert "W&B cannot log online" in result.stdout
    assert "wandb sync" in result.stdout
    assert "a" * 40 not in result.stdout + result.stderr
    assert time.monotonic() - begun < 90


def test_a_key_that_cannot_be_one_does_not_stop_the_run(train):
    result = train(*SMOKE, env={"WANDB_API_KEY": "abc"})
    assert result.returncode == 0, result.stderr
    assert "W&B cannot log online" in result.stdout


def test_csv_never_imports_wandb_and_local_data_never_imports_datasets(tmp_path):
    """They are made impossible to import, as on a machine that does not have them."""
    block = "import sys; sys.modules.update(dict.fromkeys(('wandb', 'datasets', 'pyarrow')))"
    code = f"{block}; import runpy; runpy.run_path('train.py', run_name='__main__')"
    command = [sys.executable, "-c", code, f"runs={tmp_path}/runs", "experiment=smoke", "logger=csv"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=clean_environment())
    assert result.returncode == 0, result.stderr


def test_on_a_terminal_it_shows_a_bar_and_does_not_ask_for_a_key(tmp_path):
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "train.py", f"runs={tmp_path}/runs", *SMOKE, "steps=400"]
    environment = {**clean_environment(), "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while block := os.read(ours, 4096):
                shown += block
    os.close(ours)
    text = shown.decode(errors="replace")
    assert process.returncode == 0, text
    for word in ("rope, seed 0 100%", "loss ", "validation ", "tokens/s", "left]", "wandb sync"):
        assert word in text


def test_what_is_logged_is_enough_for_the_report_from_the_server(train, tmp_path):
    """The server is stood in for by objects that hold what two offline runs really logged; the key is missing here."""
    assert train("-m", "pos=rope,sinusoidal", *SMOKE, env={"WANDB_MODE": "offline"}).returncode == 0
    folder = tmp_path / "runs" / "smoke"
    here = read_folder(folder)
    there = read_group("team", "posenc", "smoke", api=Server([only(folder / run.scheme) for run in here.runs]))
    assert there.notices == ()
    for one, other in zip(here.runs, there.runs, strict=True):
        assert (one.scheme, one.seed, one.budget) == (other.scheme, other.seed, other.budget)
        for name, values in one.curve.items():
            np.testing.assert_allclose(values, other.curve[name])
        assert {key: one.summary[key] for key in other.summary} == other.summary
        assert {"bits_per_byte", "parameters", "versions", "hardware", "commit"} <= other.summary.keys()
    panels = [compare(sweep)[0] for sweep in (here, there)]
    assert words.against(panels[0]) == words.against(panels[1])


class Server:
    """The two calls of W&B's public API that the report makes, answered from offline files."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def runs(self, path: str, filters: dict[str, str]) -> list[SimpleNamespace]:
        assert (path, filters) == ("team/posenc", {"group": "smoke"})
        return [self.run(folder) for folder in self.folders]

    def run(self, folder: Path) -> SimpleNamespace:
        found = records(folder)
        (meta,) = [record["run"] for record in found if record["type"] == "run"]
        summary: dict = {}
        for record in found:
            summary |= record["summary"]["update"] if record["type"] == "summary" else {}
        history = [record["history"]["item"] for record in found if record["type"] == "history"]
        return SimpleNamespace(
            name=meta["display_name"], url="https://wandb.ai/team/posenc/runs/1", config=meta["config"]["update"],
            summary=summary, scan_history=lambda: iter(history),
        )  # fmt: skip


def test_a_server_that_does_not_answer_is_named_in_a_sentence():
    command = [sys.executable, "-m", "posenc.report", "wandb://team/posenc/smoke"]
    away = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    result = subprocess.run(command, capture_output=True, text=True, env={**clean_environment(), **away})
    assert result.returncode == 2
    assert "W&B has no answer about team/posenc" in result.stderr
    assert "Traceback" not in result.stderr
