"""The end of a run: its summary, and what its logger is told."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posenc.errors import RunError, UserError
from posenc.storage import checkpoint_files
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.logger import Logger
from posenc.training.accelerator import Hardware
from posenc.training.checkpoint_io import CheckpointIO
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


def test_the_peak_memory_of_a_run_is_not_that_of_the_run_before_it_in_its_process(tmp_path, monkeypatch):
    begun: list[torch.device] = []
    monkeypatch.setattr("posenc.training.fit.reset_peak_memory", begun.append)
    train_here(tmp_path, *SHORT)
    assert begun == [torch.device("cpu")]


class Trained:
    """A run at its end, with as much as its sample and its logger need."""

    def __init__(self, path: Path, logger: Logger) -> None:
        objective = SimpleNamespace(prompt="", sample=lambda *_: "a sample")
        self.experiment = SimpleNamespace(objective=objective, tokenizer=None)
        hardware = SimpleNamespace(full_model=lambda model, _: model)
        self.module = SimpleNamespace(hardware=hardware, model=torch.nn.Identity())
        self.settings, self.device = SimpleNamespace(context=8), torch.device("cpu")
        self.metrics = SimpleNamespace(logger=logger)
        self.directory = RunDirectory(path, "smoke", "rope", 0)


def test_what_a_broken_logger_says_is_told_without_secrets(tmp_path, monkeypatch, capsys):
    run: Any = Trained(tmp_path, Noted(broken=True))
    monkeypatch.setenv("WANDB_API_KEY", "its disk")  # which is in the error
    TrainingRun._finish(run, {"steps": 2})
    assert capsys.readouterr().err == "A logger failed at the end of this run: *** is full\n"


def test_a_run_whose_directory_has_another_vocabulary_is_refused_before_anything_is_written(tmp_path):
    def refuse(folder: Path) -> None:
        raise UserError(f"{folder} has another vocabulary")

    run: Any = Trained(tmp_path, Noted())
    run.experiment.tokenizer = SimpleNamespace(check=refuse)
    with pytest.raises(UserError, match="has another vocabulary"):
        TrainingRun.train(run)
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]


def test_a_run_that_another_process_has_begun_meanwhile_does_not_begin_again_at_fork_from(tmp_path, monkeypatch):
    def training(*_: Any, **__: Any) -> None:
        raise RunError("it would be trained now")

    monkeypatch.setattr("posenc.training.fit.build", training)
    run: Any = Trained(tmp_path, Noted())
    run.experiment.config = {"seed": 0}
    run.experiment.tokenizer = SimpleNamespace(check=lambda _: None, save=lambda _: None)
    begun: list[RunDirectory] = []
    for _ in range(2):
        run.fork = SimpleNamespace(into=begun.append)
        with pytest.raises(RunError, match="it would be trained now"):
            TrainingRun.train(run)
        assert begun == [run.directory]
        CheckpointIO().save_checkpoint({}, run.directory.checkpoints / checkpoint_files.stem(10))


def test_a_run_without_its_sample_is_not_finished(tmp_path):
    run: Any = Trained(tmp_path, Noted())
    (tmp_path / "sample.txt").mkdir()
    with pytest.raises(RunError, match="sample.txt could not be written"):
        TrainingRun._finish(run, {"steps": 2})
    assert not run.directory.finished()


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
