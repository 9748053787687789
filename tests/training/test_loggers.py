"""W&B never stops a run, never asks, and holds the curve of metrics.csv."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posenc.training.directory import read_metrics
from tests.conftest import ROOT, clean_environment, only

SMOKE = ("experiment=smoke", "trainer=cpu")


def records(wandb_file: Path) -> list:
    """Every record of an offline run's file."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(wandb_file))
    found = []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        found.append(record)
    return found


def value(item) -> tuple[str, object]:
    return item.key or "/".join(item.nested_key), json.loads(item.value_json)


def test_without_a_key_a_sweep_is_logged_offline_one_run_each_with_the_right_curve(train, tmp_path):
    result = train("-m", "pos=none,rope", *SMOKE, "logger.tags=[trial]")
    assert result.returncode == 0, result.stderr
    assert "wandb leet" in result.stdout
    assert "wandb sync" in result.stdout
    ids = set()
    for scheme in ("none", "rope"):
        run = only(tmp_path / "runs" / "smoke" / scheme)
        found = records(only(only(run / "wandb", "offline-run-*"), "*.wandb"))
        (meta,) = [record.run for record in found if record.HasField("run")]
        assert (meta.run_group, meta.job_type, list(meta.tags)) == ("smoke", scheme, ["trial"])
        config = dict(value(item) for item in meta.config.update)
        assert config["model"]["width"] == 32
        ids.add(meta.run_id)
        metrics = {record.metric.name or record.metric.glob_name for record in found if record.HasField("metric")}
        assert {"step", "tokens"} <= metrics
        history = [dict(map(value, record.history.item)) for record in found if record.HasField("history")]
        logged = [row for row in history if "train_loss" in row]
        written = read_metrics(run / "metrics.csv")
        assert len(logged) == len(written) == 4
        for row, reference in zip(logged, written, strict=True):
            for column, text in reference.items():
                assert row.get(column) == (float(text) if text else None)
        assert any("sample" in row for row in history)
    assert len(ids) == 2


def test_with_a_key_and_no_network_the_run_goes_on_offline_within_a_bounded_wait(train):
    begun = time.monotonic()
    away = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    result = train(*SMOKE, "logger.timeout=3", env=away)
    assert result.returncode == 0, result.stderr
    assert "could not be reached" in result.stdout
    assert "wandb sync" in result.stdout
    assert "a" * 40 not in result.stdout + result.stderr
    assert time.monotonic() - begun < 90


def test_csv_never_imports_wandb_and_local_data_never_imports_datasets(tmp_path):
    """They are made impossible to import, as on a machine that does not have them."""
    block = "import sys; sys.modules.update(dict.fromkeys(('wandb', 'datasets', 'tokenizers', 'pyarrow')))"
    code = f"{block}; import runpy; runpy.run_path('train.py', run_name='__main__')"
    command = [sys.executable, "-c", code, f"runs={tmp_path}/runs", "experiment=smoke", "logger=csv"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=clean_environment())
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is needed")
def test_on_a_terminal_it_shows_a_bar_and_does_not_ask_for_a_key(tmp_path):
    import pty

    command = [sys.executable, "train.py", f"runs={tmp_path}/runs", *SMOKE, "steps=400"]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, command, {**clean_environment(), "TERM": "xterm", "COLUMNS": "120"})
    shown = b""
    try:
        while block := os.read(terminal, 4096):
            shown += block
    except OSError:  # the child is gone
        pass
    _, status = os.waitpid(child, 0)
    text = shown.decode(errors="replace")
    assert os.waitstatus_to_exitcode(status) == 0, text
    for word in ("rope, seed 0 100%", "loss ", "tokens/s", "left]", "wandb sync"):
        assert word in text
