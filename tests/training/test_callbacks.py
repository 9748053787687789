"""When checkpoints are due, and what is shown of a run's progress."""

import errno
import io
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
