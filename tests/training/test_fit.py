"""The end of a run: its summary, and what its logger is told."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posenc.errors import RunError
from posenc.tracking.logger import Logger
from posenc.training.accelerator import Hardware
from posenc.training.fit import TrainingRun
from posenc.training.timer import Timer
from tests.conftest import train_here

SHORT = ("steps=2", "log_every=1", "eval_every=2", "attention_every=2", "eval_windows=2")


class Noted(Logger):
    """Notes how a run ends; `broken` fails whatever the end."""

    def __init__(self, broken: bool = False) -> None:
        self.broken, self.ends = broken, []  # type: ignore[var-annotated]

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:  # noqa: ARG002
        if self.broken:
            raise ValueError("its disk is full")
        self.ends.append(summary["steps"])

    def close(self, failed: bool) -> None:
        if self.broken:
            raise ValueError("its disk is full")
        self.ends.append("failed" if failed else "finished")


@pytest.mark.parametrize(("broken", "ends"), [(False, [2, "finished"]), (True, [])])
def test_a_logger_hears_that_the_run_is_finished_and_a_broken_one_does_not_fail_it(
    broken, ends, tmp_path, monkeypatch, capsys
):
    logger = Noted(broken)
    monkeypatch.setattr("posenc.training.fit.build", lambda *_, **__: logger)
    assert (train_here(tmp_path, *SHORT) / "summary.json").exists()
    assert logger.ends == ends
    told = "A logger failed at the end of this run: its disk is full\n" if broken else ""
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(("broken", "ends"), [(False, ["failed"]), (True, [])])
def test_a_logger_hears_that_the_run_has_failed_and_a_broken_one_does_not_hide_why(broken, ends, tmp_path, monkeypatch):
    logger = Noted(broken)
    monkeypatch.setattr("posenc.training.fit.build", lambda *_, **__: logger)
    with pytest.raises(RunError, match="is nan at step 2"):
        train_here(tmp_path, *SHORT, "optim.lr=1e20")
    assert logger.ends == ends


def test_the_speed_of_a_run_is_that_of_all_its_steps():
    row = {"tokens": 3000, "seconds": 1.5, "val_loss": 2.0, "tokens_per_s": 50, "mfu": 0.9}
    module = SimpleNamespace(configuration={}, hardware=Hardware(compile=True))
    run: Any = SimpleNamespace(
        metrics=SimpleNamespace(row=row, peak_seconds=0.3, machines=["here"]), directory=SimpleNamespace(scheme="rope"),
        settings=SimpleNamespace(seed=3), trainer=SimpleNamespace(global_step=6, world_size=1, precision="32-true"),
        parameters=5, device=torch.device("cpu"), timer=Timer(), commit="abc", module=module,
        machine={"hardware": "here", "devices": 1, "compiled": True},
    )  # fmt: skip
    summary = TrainingRun._summary(run)
    assert (summary["tokens_per_s"], summary["mfu"]) == (2000, pytest.approx(0.2))
    assert (summary["devices"], summary["compiled"]) == (1, True)
    assert (summary["seed"], summary["steps"], summary["val_loss"], summary["commit"]) == (3, 6, 2.0, "abc")
