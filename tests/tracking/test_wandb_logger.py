"""A run on W&B's stand-in: whole on a healthy server, told once and left to `wandb sync` on any other."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posenc.storage import checkpoint_files
from posenc.storage.csv_files import MetricsFile
from posenc.storage.metrics import COLUMNS
from posenc.storage.run_directory import RunDirectory
from posenc.tracking import loggers, wandb_logger
from posenc.tracking.wandb_logger import WeightsAndBiases
from posenc.training.checkpoint_io import CheckpointIO
from tests.conftest import clean_environment, only
from tests.tracking.wandb_answers import StandIn
from tests.tracking.wandb_stand_in import answers_500, refuses, silent, stand_in

HANG = 60
"""Seconds; what takes as long has no end. The limits in here are one or two."""


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run", "trial", "rope", 0)


@pytest.fixture
def online(monkeypatch):
    """Make W&B talk to a stand-in."""

    def to(server: StandIn) -> None:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

    for name in clean_environment().keys() ^ os.environ.keys():
        monkeypatch.delenv(name, raising=False)
    return to


def session(directory: RunDirectory, first: int, last: int, failed: bool = False) -> None:
    """What a training run does with its logger, from one step to another."""
    logger = loggers.weights_and_biases(directory, {"seed": 0}, timeout=2, upload=2)
    file = MetricsFile(directory.path / "metrics.csv", COLUMNS, first - 1)
    for step in range(first, last + 1):
        row = {"step": step, "tokens": 10 * step, "train_loss": 1 / step}
        file.append([row])
        logger.log_metrics(row)
    if not failed:
        logger.finish("text", {"val_loss": 0.5})
    logger.close(failed)


def steps(server: StandIn) -> list[int]:
    (kept,) = server.runs.values()
    return [row["step"] for row in kept.history if "train/loss" in row]


def sync(segment: Path, server: StandIn, *options: str) -> None:
    command = [sys.executable, "-m", "wandb", "sync", *options, str(segment)]
    subprocess.run(command, env={**clean_environment(), **server.environment}, capture_output=True, check=True)


def test_a_healthy_server_has_every_row_the_summary_and_the_end(directory, online, capsys):
    with stand_in() as server:
        online(server)
        session(directory, 1, 30)
        (kept,) = server.runs.values()
    assert steps(server) == list(range(1, 31))
    assert [row["_step"] for row in kept.history][:30] == steps(server)
    assert kept.summary["val_loss"] == 0.5
    assert kept.finished
    assert (kept.fields["groupName"], kept.fields["jobType"]) == ("trial", "rope")
    assert server.unknown == []
    assert capsys.readouterr().out == f"W&B: {server.url}/team/posenc/runs/{directory.run_id()}\n"


def test_a_resumed_run_leaves_out_what_the_server_has_and_hands_over_what_it_lacks(directory, online):
    with stand_in() as server:
        online(server)
        session(directory, 1, 30, failed=True)
        (kept,) = server.runs.values()
        del kept.lines["wandb-history.jsonl"][20:]  # a session that was killed loses its last rows
        kept.lines["wandb-summary.json"] = kept.lines["wandb-history.jsonl"][-1:]
        session(directory, 26, 40, failed=True)
        session(directory, 31, 50, failed=True)
        del kept.lines["wandb-history.jsonl"][45:]
        kept.lines["wandb-summary.json"] = kept.lines["wandb-history.jsonl"][-1:]
        session(directory, 51, 50)  # killed after the last step
    assert steps(server) == list(range(1, 51))


@pytest.mark.parametrize(("fault", "failed"), [(answers_500, False), (silent, False), (refuses, False), (silent, True)])
def test_a_fault_in_mid_run_is_told_once_and_sync_uploads_the_run(fault, failed, directory, online, capfd):
    with stand_in(then=fault) as server:
        online(server)
        begun = time.monotonic()
        session(directory, 1, 30, failed)
        assert time.monotonic() - begun < HANG
        told = [line for line in capfd.readouterr().out.splitlines() if "This run is incomplete on W&B" in line]
        assert len(told) == 1
        assert "wandb sync --no-skip-online" in told[0]
        server.fault = server.fault_then = None
        sync(only(directory.path, "wandb/run-*"), server, "--no-skip-online")
        assert sorted(set(steps(server))) == list(range(1, 31))  # a reader keeps the last row of each step


@pytest.mark.parametrize("fault", [answers_500, silent])
def test_a_fault_from_the_beginning_is_told_once_and_the_run_is_logged_offline(fault, directory, online, capfd):
    with stand_in(fault) as server:
        online(server)
        begun = time.monotonic()
        session(directory, 1, 30)
        assert time.monotonic() - begun < HANG
        said = capfd.readouterr()
        assert said.err == ""
        assert said.out.startswith("W&B is offline (")
        assert said.out.count("\n") == 1
        server.fault = None
        sync(only(directory.path, "wandb/offline-run-*"), server)
        assert steps(server) == list(range(1, 31))


def test_the_hint_of_an_offline_session_does_no_harm_once_a_later_one_was_online(directory, online, monkeypatch):
    with stand_in() as server:
        online(server)
        monkeypatch.setenv("WANDB_MODE", "offline")
        session(directory, 1, 30, failed=True)
        monkeypatch.delenv("WANDB_MODE")
        session(directory, 31, 50)
        (kept,) = server.runs.values()
        before = steps(server), dict(kept.summary)
        sync(only(directory.path, "wandb/offline-run-*"), server)
        assert (steps(server), dict(kept.summary)) == before
    assert before[0] == list(range(1, 51))
    assert before[1]["val_loss"] == 0.5


def test_what_an_online_session_had_not_uploaded_is_synced_with_a_later_offline_one(
    directory, online, monkeypatch, capfd
):
    with stand_in() as server:
        online(server)
        session(directory, 1, 30, failed=True)
        (kept,) = server.runs.values()
        del kept.lines["wandb-history.jsonl"][20:]  # the session was killed
        monkeypatch.setenv("WANDB_MODE", "offline")
        session(directory, 31, 50)
        hint = re.search(r"wandb sync (--no-skip-online )?", capfd.readouterr().out)
        assert hint
        assert hint[1]
        for segment in sorted(directory.path.glob("wandb/*run-*")):
            sync(segment, server, *hint[1].split())
        assert sorted(set(steps(server))) == list(range(1, 51))


def test_a_service_that_dies_takes_nothing_with_it_but_the_upload(directory, online, capfd):
    from posenc.compat import wandb_service

    with stand_in() as server:
        online(server)
        logger = loggers.weights_and_biases(directory, {"seed": 0}, timeout=2, upload=2)
        service = wandb_service()
        assert service is not None
        service.kill()
        service.wait()
        MetricsFile(directory.path / "metrics.csv", COLUMNS, 0)
        for step in range(1, 5):
            logger.log_metrics({"step": step})
        MetricsFile(directory.path / "metrics.csv", COLUMNS, 0).append([{"step": 1}])
        logger.finish("text", {})
        logger.close(failed=False)
    assert capfd.readouterr().out.count("This run is incomplete on W&B") == 1


def test_a_wandb_that_is_broken_is_told_in_a_line_and_nothing_more_is_asked_of_it(
    directory, tmp_path, monkeypatch, capfd
):
    package = tmp_path / "broken" / "wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('half installed')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(package.parent)
    session(directory, 1, 3)
    told = capfd.readouterr()
    assert told.out == "W&B cannot be used (half installed): logging to metrics.csv only.\n"
    assert told.err == ""


def test_why_wandb_cannot_be_used_is_told_without_secrets(directory, monkeypatch, capsys):
    def load() -> Any:
        raise RuntimeError("correct horse is no key")

    monkeypatch.setenv("WANDB_API_KEY", "correct horse")
    monkeypatch.setattr(wandb_logger, "load", load)
    loggers.weights_and_biases(directory, {"seed": 0})
    assert capsys.readouterr().out == "W&B cannot be used (*** is no key): logging to metrics.csv only.\n"


def test_neither_uncommitted_changes_nor_what_is_printed_are_uploaded():
    given: dict[str, Any] = {}

    def init(**settings: Any) -> Any:
        given.update(settings)
        return SimpleNamespace(define_metric=lambda *_, **__: None)

    wandb_logger._new_run(SimpleNamespace(Settings=dict, init=init), "online", {"id": "a"}, timeout=1)
    assert (given["settings"]["disable_git"], given["settings"]["console"]) == (True, "off")


def test_a_sample_is_text_and_an_artifact_has_the_newest_checkpoint_and_the_best(directory):
    for folder, step in ((directory.checkpoints, 5), (directory.checkpoints, 10), (directory.best, 5)):
        CheckpointIO().save_checkpoint({}, made(folder) / checkpoint_files.stem(step))
    logged: list[Any] = []
    files: list[str] = []
    run = SimpleNamespace(id="a", summary={}, log=logged.append, log_artifact=lambda _: None)
    artifact = SimpleNamespace(add_file=lambda file, name=None: files.append(name or Path(file).name))
    wandb = SimpleNamespace(Html=str, Artifact=lambda *_, **__: artifact)
    logger = object.__new__(WeightsAndBiases)
    vars(logger).update(
        wandb=wandb, run=run, directory=directory, wants_best=True, sync="wandb sync", _healthy=True, _caught_up=True
    )
    logger.finish("a<b>&", {})
    assert logged == [{"sample": "<pre>a&lt;b&gt;&amp;</pre>"}]
    assert [re.sub("-[0-9a-f]{16}", "", file) for file in files] == [
        "step-000000010.ckpt",
        "best/step-000000005.ckpt",
    ]


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


AWAY = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}


@pytest.mark.usefixtures("online")  # without the settings of whoever runs this
@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"WANDB_MODE": "offline"}, ""),
        ({"WANDB_MODE": "dryrun"}, ""),  # W&B's former name
        ({"WANDB_MODE": "online", **AWAY}, " (127.0.0.1:9 does not respond"),
        ({"WANDB_MODE": "run", **AWAY}, " (127.0.0.1:9 does not respond"),  # the former name
        ({"WANDB_API_KEY": "abc"}, " (WANDB_API_KEY invalid"),
    ],
)
def test_an_offline_run_says_once_why_and_how_to_view_and_upload_it(environment, why, directory, monkeypatch, capfd):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session(directory, 1, 3)
    told, errors = capfd.readouterr()
    assert told.startswith(f"W&B is offline{why}")
    assert "view this run with `wandb leet " in told
    assert "upload it with `wandb sync " in told
    assert (told.count("\n"), errors) == (1, "")
    assert AWAY["WANDB_API_KEY"] not in told


def test_a_setting_that_wandb_refuses_is_named(directory, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_BASE_URL", "nowhere")
    session(directory, 1, 3)
    assert re.match(r"W&B cannot be used \(base_url: .+\): logging to metrics.csv only.\n", capfd.readouterr().out)


@pytest.mark.parametrize(("failed", "told"), [(False, ""), (True, "This run is incomplete on W&B (timed out after")])
def test_a_run_that_has_failed_is_said_to_have_and_its_upload_is_not_waited_for(failed, told, monkeypatch, capsys):
    monkeypatch.setattr(wandb_logger, "FAILED_UPLOAD", 0.5)
    codes: list[int] = []
    uploaded = threading.Event()
    if not failed:
        threading.Timer(1, uploaded.set).start()  # longer than a failed run waits

    def finish(exit_code: int) -> None:
        codes.append(exit_code)
        uploaded.wait(20)

    logger = object.__new__(WeightsAndBiases)
    wandb = SimpleNamespace(teardown=lambda: None)
    run = SimpleNamespace(finish=finish)
    vars(logger).update(wandb=wandb, run=run, upload=20.0, warnings=[], hint="", sync="wandb sync", _healthy=True)
    logger.close(failed)
    uploaded.set()
    assert codes == [int(failed)]
    said = capsys.readouterr().out
    assert said.startswith(told)
    assert bool(said) == failed
