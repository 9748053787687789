"""Validations: a signal during one, their standard error, and the model that they saw."""

import json
import signal

import numpy as np
import pytest
import torch

from posenc.data.batches import validation_windows
from posenc.errors import Stopped
from posenc.evaluation.load import load
from posenc.objectives.objective import loss
from posenc.storage import checkpoint_files
from posenc.training.checkpoint_callback import Checkpoint
from posenc.training.module import LanguageModel
from tests.conftest import ROOT, curve, train_here
from tests.training.sending import send

SHORT = ("log_every=1", "eval_every=5", "eval_windows=8", "steps=10")


def test_a_second_signal_in_the_validation_that_the_first_has_postponed_loses_nothing(tmp_path, monkeypatch):
    validate = LanguageModel.validation_loss
    stops: list[int] = []

    def stopped_twice(self, *batch):
        if len(stops) < 2:
            stops.append(self.trainer.global_step)
            send(signal.SIGTERM)
        return validate(self, *batch)

    monkeypatch.setattr(LanguageModel, "validation_loss", stopped_twice)
    for _ in range(2):
        with pytest.raises(Stopped, match="step 5 of 10 is saved"):
            train_here(tmp_path / "stopped", *SHORT)
    assert stops == [5, 5]
    stopped, whole = (train_here(tmp_path / name, *SHORT) for name in ("stopped", "whole"))
    assert curve(stopped) == curve(whole)


def test_a_postponed_row_that_was_written_before_the_next_session_was_killed_is_there_once(tmp_path, monkeypatch):
    validate = LanguageModel.validation_loss

    def stopped(self, *batch):
        send(signal.SIGTERM)
        return validate(self, *batch)

    def killed(*_):
        raise RuntimeError("killed")

    again = (*SHORT, "attention_every=5")
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "validation_loss", stopped)
        with pytest.raises(Stopped, match="step 5 of 10 is saved"):
            train_here(tmp_path / "killed", *again)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_train_start", killed)  # called after that of the writer of the rows
        with pytest.raises(RuntimeError, match="killed"):
            train_here(tmp_path / "killed", *again)
    one, whole = (train_here(tmp_path / name, *again) for name in ("killed", "whole"))
    assert curve(one) == curve(whole)
    assert (one / "attention.csv").read_text() == (whole / "attention.csv").read_text()


def test_a_run_stopped_twice_at_one_step_keeps_the_checkpoint_before_it(tmp_path, monkeypatch):
    validate = LanguageModel.validation_loss

    def stopped(self, *batch):
        if self.trainer.global_step == 10:
            send(signal.SIGTERM)
        return validate(self, *batch)

    monkeypatch.setattr(LanguageModel, "validation_loss", stopped)
    for _ in range(2):
        with pytest.raises(Stopped, match="step 10 of 15 is saved"):
            train_here(tmp_path, *SHORT[:-1], "steps=15", "checkpoint_seconds=0")
        assert sorted(map(checkpoint_files.step, tmp_path.rglob("step-*.ckpt"))) == [5, 10]


def test_the_standard_error_is_that_of_the_mean_over_validation_batches(tmp_path):
    run = train_here(tmp_path, *SHORT, "eval_windows=12")
    trained, summary = load(run), json.loads((run / "summary.json").read_text())
    windows = validation_windows(trained.split(ROOT / "data" / "cache", "valid"), 12, 64 + 1)
    with torch.no_grad():
        losses = [loss(trained.model(part[:, :-1]), part[:, 1:]).item() for part in windows.split(4)]
    assert summary["val_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert summary["val_loss_se"] == pytest.approx(np.std(losses, ddof=1) / 3**0.5, rel=1e-3)
