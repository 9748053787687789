"""W&B never stops a run, never asks, and holds the curve of metrics.csv."""

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from posenc.storage.csv_files import MetricsFile, read_csv
from posenc.storage.metrics import LOGGED_AS
from posenc.storage.run_directory import RunDirectory
from posenc.tracking import loggers
from tests import warm
from tests.conftest import CONF, ROOT, clean_environment, fresh_python, only
from tests.tracking.wandb_stand_in import silent, stand_in

SMOKE = ("experiment=smoke", "trainer=cpu")


def records(run: Path) -> list[dict]:
    """Every record of the one offline run in a run directory, as W&B's own reader gives them."""
    file = only(only(run / "wandb", "offline-run-*"), "*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_without_a_key_a_sweep_is_logged_offline_one_run_each_with_the_right_curve(train, tmp_path):
    result = train(
        "-m",
        "pos=none,rope",
        *SMOKE,
        *("steps=10", "eval_every=5", "attention_every=5"),
        *("schedule=constant", "schedule.warmup=10", "optim.lr=2"),  # the loss rises: the last model is not the best
        "logger.tags=[trial]",
        "logger.artifact=true",
        env={"WANDB_DATA_DIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert "wandb leet" in result.stdout
    assert "wandb sync" in result.stdout
    assert re.search(r"^Run 1 of 2$", result.stdout, re.MULTILINE)
    assert re.search(r"^Run 2 of 2, about \d+ (s|min) left$", result.stdout, re.MULTILINE)
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
        logged = [row for row in history if "train/loss" in row]
        written = read_csv(run / "metrics.csv")
        assert len(logged) == len(written) == 2
        for row, reference in zip(logged, written, strict=True):
            for column, text in reference.items():
                assert row.get(LOGGED_AS.get(column, column)) == (float(text) if text else None)
        assert any("sample._type" in row for row in history)
        (files,) = [record["artifact"]["manifest"]["contents"] for record in found if record["type"] == "artifact"]
        names = sorted(re.sub("-[0-9a-f]{16}", "", file["path"]) for file in files)
        assert names == [
            "attention.csv", "best/step-000000005.ckpt", "config.yaml", "metrics.csv", "step-000000010.ckpt",
            "summary.json",
        ]  # fmt: skip
    assert len(ids) == 2


def test_csv_never_imports_wandb_and_local_data_never_imports_datasets(tmp_path):
    """They are made impossible to import, as on a machine that does not have them."""
    block = "import sys; sys.modules.update(dict.fromkeys(('wandb', 'datasets', 'pyarrow')))"
    code = f"{block}; import runpy; runpy.run_path('train.py', run_name='__main__')"
    result = fresh_python("-c", code, f"runs={tmp_path}/runs", "experiment=smoke", "logger=csv")
    assert result.returncode == 0, result.stderr
    assert "W&B" not in result.stdout


def test_on_a_terminal_of_80_columns_it_shows_a_bar_with_every_number_and_does_not_ask_for_a_key(tmp_path):
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    command = [sys.executable, "train.py", f"runs={tmp_path}/my runs", *SMOKE, "steps=400"]
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
    assert re.search(r"rope, seed 0 \|.+\| 400/400, 00:00 left, loss \d\.\d{3}, val \d\.\d{3}, [\d,]+ tokens/s", text)
    assert re.search(
        r"`wandb leet '[^']+/my runs/[^']+'`, upload it with `wandb sync '[^']+/wandb'/\*run-\*-\w+`", text
    )
    shown_next = text.partition("Next: train another scheme")[2]
    assert f"python -m posenc.report '{tmp_path}/my runs/smoke'" in shown_next


def test_a_server_that_falls_silent_does_not_keep_the_process(train, tmp_path):
    with stand_in(then=silent) as server:
        result = train(*SMOKE, "logger.upload=2", env=server.environment)
    assert (result.returncode, result.stderr) == (0, "")
    said = [line for line in result.stdout.splitlines() if "W&B" in line]
    assert len(said) == 2  # where it is, and what is missing
    assert "This run is incomplete on W&B" in said[1]
    assert len(read_csv(only(tmp_path / "runs" / "smoke" / "rope") / "metrics.csv")) == 4


def test_the_segments_of_a_run_killed_and_resumed_offline_sync_into_one_run_with_every_step_once(train, tmp_path):
    """More than 32 KiB of rows: W&B's service has written some of them down, and loses the rest with the process."""
    arguments = (*SMOKE, "steps=320", "log_every=1", "eval_every=40", "checkpoint_seconds=0")
    folder = tmp_path / "runs" / "smoke" / "rope"
    command = ("train.py", f"runs={tmp_path}/runs", *arguments)
    with warm.python().start(*command, cwd=ROOT, env=clean_environment()) as process:
        while process.poll() is None and not any(len(read_csv(file)) > 170 for file in folder.glob("*/metrics.csv")):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -9
    resumed = train(*arguments)
    assert resumed.returncode == 0, resumed.stderr
    assert "Resuming from step-" in resumed.stdout
    run = only(folder)
    segments = sorted(run.glob("wandb/offline-run-*"))
    assert len(segments) == 2
    with stand_in() as server:
        for segment in segments:
            sync = [sys.executable, "-m", "wandb", "sync", str(segment)]
            subprocess.run(sync, env={**clean_environment(), **server.environment}, capture_output=True, check=True)
        ((name, kept),) = server.runs.items()
    assert name == (run / "run_id.txt").read_text().strip()
    rows = [row for row in kept.history if "train/loss" in row]
    assert [row["step"] for row in rows] == [row["_step"] for row in rows] == list(range(1, 321))
    for row, written in zip(rows, read_csv(run / "metrics.csv"), strict=True):
        assert row["train/loss"] == float(written["train_loss"])


def test_a_run_begun_by_an_agent_is_the_agent_s(tmp_path):
    """The sweep of conf/ itself, made smaller, handed out by the stand-in and taken by the real agent."""
    sweep = yaml.safe_load((CONF / "wandb_sweep.yaml").read_text())
    sweep["parameters"] = {key: {"values": value["values"][-1:]} for key, value in sweep["parameters"].items()}
    sweep["command"] += [*SMOKE, f"runs={tmp_path}/runs"]
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    with stand_in() as server:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**clean_environment(), **server.environment, "WANDB_DIR": str(tmp_path), "PATH": path}
        for words in (("sweep", str(tmp_path / "sweep.yaml")), ("agent", "--count=1", "team/posenc/sweep0")):
            command = [sys.executable, "-m", "wandb", *words]
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=120)
        assert list(server.runs) == ["agent0"]
        assert server.unknown == []
        kept = server.runs["agent0"]
    run = only(tmp_path / "runs" / "smoke" / "rope", "seed2-*")
    assert (run / "run_id.txt").read_text() == "agent0\n"
    assert kept.fields["sweep"] == "sweep0"
    assert kept.fields["groupName"] == "smoke"
    assert kept.summary["val_loss"] == json.loads((run / "summary.json").read_text())["val_loss"]


def test_tensorboard_s_files_have_every_step_of_a_resumed_run_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = RunDirectory(tmp_path, "smoke", "rope", 0)
    for first, last in (
        (1, 5),
        (4, 6),
        (7, 6),
    ):  # rows 4 and 5 came after the last checkpoint; then only the end is lost
        logger = loggers.tensorboard(directory, {})
        for step in range(first, last + 1):
            logger.log_metrics({"step": step, "train_loss": step / 2})
        if first > last:
            logger.finish("In the beginning", {"steps": last})
        logger.close(failed=False)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(n, n / 2) for n in range(1, 7)]
    assert [event.step for event in events.Tensors("sample/text_summary")] == [6]


def test_tensorboard_has_the_rows_from_before_it_was_chosen(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    file = MetricsFile(tmp_path / "metrics.csv", ("step", "train_loss"), 0)
    logger = loggers.tensorboard(RunDirectory(tmp_path, "smoke", "rope", 0), {})
    file.append([{"step": step, "train_loss": step / 2} for step in (1, 2)])  # before a fork, or with logger=csv
    for row in ({"step": 3, "train_loss": 1.5}, {"step": 4, "train_loss": 2.0}):
        file.append([row])
        logger.log_metrics(row)
    logger.close(failed=False)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(n, n / 2) for n in range(1, 5)]


def test_without_tensorboard_a_run_goes_on_with_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for module in ("torch.utils.tensorboard", "posenc.tracking.tensorboard_logger"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert type(loggers.tensorboard(RunDirectory(tmp_path, "smoke", "rope", 0), {})) is loggers.Logger
    assert capsys.readouterr().out.startswith("TensorBoard is not installed (`pip install tensorboard`)")


@pytest.mark.parametrize(("sweep", "ours"), [({}, False), ({"WANDB_SWEEP_ID": "sweep0"}, True)])
def test_a_run_has_its_own_id_and_name_but_for_an_agent_s(sweep, ours, tmp_path, monkeypatch):
    """WANDB_RUN_ID without a sweep's agent would be that of every run that is started with it."""
    monkeypatch.delenv("WANDB_SWEEP_ID", raising=False)
    for name, value in {"WANDB_RUN_ID": "agent0", **sweep}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("posenc.tracking.wandb_logger.start", lambda *given: given[1])
    directory = RunDirectory(tmp_path, "smoke", "rope", 3)
    settings: Any = loggers.weights_and_biases(directory, {"seed": 3}, entity="team")
    assert (settings["id"] == "agent0") == ours
    assert settings["id"] == directory.run_id()
    assert (settings["name"], settings["group"], settings["job_type"]) == ("rope-seed3", "smoke", "rope")
    assert (settings["config"], settings["dir"], settings["tags"]) == ({"seed": 3}, str(tmp_path), None)
    assert (settings["project"], settings["entity"]) == ("posenc", "team")
