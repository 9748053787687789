"""Signals that arrive during a validation."""

import os
import signal
import time
from pathlib import Path

import pytest

from posenc.config.compose import composed
from posenc.errors import Stopped
from posenc.evaluation.load import load
from posenc.training.module import LanguageModel
from posenc.training.run import run
from tests.conftest import CONF, curve, only

SMOKE = ("experiment=smoke", "logger=csv", "trainer=cpu", "log_every=1", "eval_every=5", "eval_windows=8", "steps=10")


def train(runs: Path, *overrides: str) -> None:
    run(*composed(CONF, (*SMOKE, f"runs={runs}", *overrides)))


def test_a_second_signal_in_the_validation_that_the_first_has_postponed_loses_nothing(tmp_path, monkeypatch):
    validate = LanguageModel.validation_step
    stops: list[int] = []

    def stopped_twice(self, *batch):
        if len(stops) < 2:
            stops.append(self.trainer.global_step)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)  # Python runs handlers between two instructions
        return validate(self, *batch)

    monkeypatch.setattr(LanguageModel, "validation_step", stopped_twice)
    for _ in range(2):
        with pytest.raises(Stopped, match="step 5 of 10 is saved"):
            train(tmp_path / "stopped")
    assert stops == [5, 5]
    for name in ("stopped", "whole"):
        train(tmp_path / name)
    assert curve(only(tmp_path / "stopped", "*/*/seed*")) == curve(only(tmp_path / "whole", "*/*/seed*"))


def test_a_loaded_model_has_its_intervention_as_the_run_ended(tmp_path):
    train(tmp_path / "ended", "intervention=offset_mask", "intervention.stop=5")
    train(tmp_path / "begun", "intervention=offset_mask", "intervention.start=5")
    active = {name: load(only(tmp_path / name, "*/*/seed*")).model.scheme.active for name in ("ended", "begun")}
    assert active == {"ended": False, "begun": True}
