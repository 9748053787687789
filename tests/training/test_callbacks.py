"""When checkpoints are due, and what is shown of a run's progress."""

import errno
import io
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posenc.errors import RunError
from posenc.storage import checkpoint_files
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.logger import Logger
from posenc.training.checkpoint_callback import Checkpoint
from posenc.training.checkpoint_io import CheckpointIO
from posenc.training.progress_bar import ProgressBar

ROW = {"step": 30, "train_loss": 2.5, "val_loss": 2.25, "tokens_per_s": 1000}


def test_checkpoints_are_so_many_seconds_apart_and_the_last_step_has_one(tmp_path, clock):
    metrics: Any = SimpleNamespace(
        just_validated=lambda step: step != 3,
        row={},
        lowest=0.0,
        check_finite=lambda *_: None,
        sync=lambda: saved.append("rows"),
        logger=Logger(),
    )
    signals: Any = SimpleNamespace(asked=None, deferred=nullcontext)
    timer: Any = SimpleNamespace(within=nullcontext)
    saved: list[int | str] = []
    trainer: Any = SimpleNamespace(
        is_global_zero=True, strategy=SimpleNamespace(broadcast=lambda one: one),
        save_checkpoint=lambda *_, **__: saved.append(trainer.global_step),
    )  # fmt: skip
    checkpoint = Checkpoint(RunDirectory(tmp_path, "smoke", "rope", 0), 60, metrics, signals, timer)
    for step, seconds in ((1, 59), (2, 60), (3, 130), (4, 131), (5, 190), (6, 191)):
        clock.now, trainer.global_step = seconds, step
        checkpoint.on_train_batch_end(trainer, SimpleNamespace(steps=6))
    assert saved == ["rows", 2, "rows", 4, "rows", 6]  # no checkpoint is newer than the rows on disk


def test_the_best_checkpoint_is_written_before_the_regular_one(tmp_path):
    metrics: Any = SimpleNamespace(
        just_validated=lambda _: True,
        row={"val_loss": 1.5},
        lowest=1.5,
        check_finite=print,
        sync=print,
        logger=SimpleNamespace(wants_best=True),
    )
    signals: Any = SimpleNamespace(asked=None, deferred=nullcontext)
    timer: Any = SimpleNamespace(within=nullcontext)
    saved: list[Path] = []
    trainer: Any = SimpleNamespace(
        is_global_zero=True, global_step=6,
        strategy=SimpleNamespace(broadcast=lambda one: one), save_checkpoint=lambda file, **_: saved.append(file),
    )  # fmt: skip
    directory = RunDirectory(tmp_path, "smoke", "rope", 0)
    directory.checkpoints.mkdir()
    Checkpoint(directory, 60, metrics, signals, timer).on_train_batch_end(trainer, SimpleNamespace(steps=6))
    assert [file.parent for file in saved] == [directory.best, directory.checkpoints]


class Saving:
    """Checkpoints of a run whose last validation loss is its lowest, with a trainer that writes them."""

    def __init__(self, path: Path, step: int) -> None:
        self.directory = RunDirectory(path, "smoke", "rope", 0)
        self.directory.best.mkdir(parents=True)
        metrics: Any = SimpleNamespace(
            just_validated=lambda _: True, row={"val_loss": 1.5}, lowest=1.5, check_finite=lambda *_: None,
            sync=lambda: None, logger=SimpleNamespace(wants_best=True),
        )  # fmt: skip
        strategy = SimpleNamespace(broadcast=lambda one: one)
        self.trainer: Any = SimpleNamespace(is_global_zero=True, global_step=step, strategy=strategy)
        self.trainer.save_checkpoint = lambda file, **_: CheckpointIO().save_checkpoint({}, file)
        signals: Any = SimpleNamespace(asked=None, deferred=nullcontext)
        timer: Any = SimpleNamespace(within=nullcontext)
        self.metrics = metrics
        self.checkpoint = Checkpoint(self.directory, 60, metrics, signals, timer)

    def steps(self, folder: Path) -> list[int]:
        return [checkpoint_files.step(file) for file in checkpoint_files.newest_first(folder)]


@pytest.mark.parametrize(("lowest", "kept"), [(1.5, 10), (1.4, 5)])
def test_only_the_checkpoint_with_the_lowest_validation_loss_so_far_is_kept_as_the_best(lowest, kept, tmp_path):
    run = Saving(tmp_path, step=10)
    run.metrics.lowest = lowest
    CheckpointIO().save_checkpoint({}, run.directory.best / checkpoint_files.stem(5))
    run.checkpoint.on_train_batch_end(run.trainer, SimpleNamespace(steps=20))
    assert run.steps(run.directory.best) == [kept]


def test_a_session_that_ended_before_it_kept_its_best_checkpoint_leaves_that_to_the_next(tmp_path):
    run = Saving(tmp_path, step=10)
    run.checkpoint.on_train_start(run.trainer, SimpleNamespace(steps=20))
    assert run.steps(run.directory.best) == [10]


def test_what_is_not_finite_is_in_no_checkpoint(tmp_path):
    """On a GPU, where the losses between two rows have not been read yet."""

    def not_finite(*_: object) -> None:
        raise RunError("the loss is nan")

    run = Saving(tmp_path, step=10)
    run.metrics.check_finite = not_finite
    with pytest.raises(RunError, match="the loss is nan"):
        run.checkpoint.on_train_batch_end(run.trainer, SimpleNamespace(steps=10))
    assert not list(tmp_path.rglob("*.ckpt"))


def test_the_ranks_agree_on_a_signal_after_the_last_row(tmp_path):
    told: list[str] = []
    signals: Any = SimpleNamespace(agree=lambda _: told.append("agree"), end_training=lambda: told.append("end"))
    metrics: Any = None
    timer: Any = None
    trainer: Any = SimpleNamespace(strategy=None)
    Checkpoint(RunDirectory(tmp_path, "smoke", "rope", 0), 60, metrics, signals, timer).on_train_end(trainer)
    assert told == ["agree", "end"]


def test_a_best_checkpoint_of_a_step_that_is_trained_again_is_removed(tmp_path):
    directory = RunDirectory(tmp_path, "smoke", "rope", 0)
    directory.best.mkdir(parents=True)
    for step in (5, 15):
        CheckpointIO().save_checkpoint({}, directory.best / checkpoint_files.stem(step))
    metrics: Any = SimpleNamespace(just_validated=lambda _: False)
    signals: Any = SimpleNamespace(asked=None)
    trainer: Any = SimpleNamespace(is_global_zero=True, global_step=10)
    Checkpoint(directory, 60, metrics, signals, timer=None).on_train_start(trainer, None)  # type: ignore[arg-type]
    assert [checkpoint_files.step(file) for file in checkpoint_files.newest_first(directory.best)] == [5]


def test_the_seconds_left_of_a_resumed_run_are_those_at_the_pace_of_its_own_steps(clock, capsys):
    """Neither the time before the first of them, in which the model is compiled, nor a postponed row says how long."""
    bar = ProgressBar("rope, seed 0", 100)
    trainer: Any = SimpleNamespace(global_step=20, is_global_zero=False)
    bar.on_train_start(trainer)
    bar.show({**ROW, "step": 20})
    clock.now += 1000
    bar.on_train_batch_start(trainer)
    clock.now += 10
    bar.on_train_batch_start(trainer)
    bar.show({**ROW, "step": 25, "val_loss": 2.5})
    bar.show(ROW)
    postponed, first, second = capsys.readouterr().out.splitlines()
    assert postponed.endswith("1,000 tokens/s")
    assert first.endswith("150 s left")
    assert second == "rope, seed 0: step 30/100  loss 2.500, val 2.250  1,000 tokens/s  70 s left"


def test_a_line_that_cannot_be_shown_does_not_stop_the_run(monkeypatch):
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    ProgressBar("rope, seed 0", 100).show(ROW)
