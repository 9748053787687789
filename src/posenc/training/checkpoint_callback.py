"""Saves checkpoints, also at a signal.

`MetricsWriter` precedes it in the list of callbacks, so that the rows of a step are on disk, or pending in the
checkpoint, when it runs.
"""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from posenc.storage import checkpoint_files
from posenc.storage.run_directory import RunDirectory
from posenc.training.metrics_writer import MetricsWriter
from posenc.training.signals import Signals
from posenc.training.timer import CHECKPOINTS, Timer


class Checkpoint(Callback):
    """Saves after validations, at least `seconds` apart, at a signal, and at the end; keeps the last two.

    If a logger needs it, the checkpoint with the lowest validation loss is also kept.
    """

    def __init__(
        self, directory: RunDirectory, seconds: float, metrics: MetricsWriter, signals: Signals, timer: Timer
    ) -> None:
        self.folder, self.best, self.seconds = directory.checkpoints, directory.best, seconds
        self.metrics, self.signals, self.timer = metrics, signals, timer
        self._saved_step, self._saved_at = -1, time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            for file in checkpoint_files.newest_first(self.best):
                if checkpoint_files.step(file) > trainer.global_step:  # will be trained again
                    file.unlink()
        self._saved_step = trainer.global_step or -1  # the checkpoint that it resumes from
        if self.metrics.just_validated(trainer.global_step):  # by a session that may have ended before keeping it
            self._keep_best(trainer, pl_module)
        if self.signals.asked is not None:  # during that validation
            self._stop(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        last = trainer.global_step == pl_module.steps
        validated = self.metrics.just_validated(trainer.global_step)
        if validated:  # before the step is saved: a run that resumes at its last step does not come here again
            self._keep_best(trainer, pl_module)
        if last or (validated and trainer.strategy.broadcast(time.monotonic() - self._saved_at >= self.seconds)):
            self._save(trainer, pl_module)
        if self.signals.asked is not None:
            self._stop(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        self.signals.agree(trainer.strategy)
        self.signals.end_training()

    def _stop(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the step, and stop the run."""
        self._save(trainer, pl_module)
        # Other ranks may not see the file yet.
        file = next(iter(checkpoint_files.newest_first(self.folder)), self.folder)
        step = f"step {trainer.global_step} of {pl_module.steps}"
        self.signals.stop(f"{step} is saved in {file}; the same command resumes from there")

    def _save(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the current step unless it is already saved; all ranks must call this."""
        if self._saved_step != trainer.global_step:
            self._write(trainer, pl_module, self.folder, checkpoint_files.KEPT)
            self._saved_step, self._saved_at = trainer.global_step, time.monotonic()

    def _keep_best(self, trainer: Any, pl_module: Any) -> None:
        """Save the current step if its validation loss is the lowest so far; rank 0, which has the logger, decides."""
        lowest = self.metrics.row.get("val_loss") == self.metrics.lowest
        if trainer.strategy.broadcast(self.metrics.logger.wants_best and lowest):
            self._write(trainer, pl_module, self.best, kept=1)

    def _write(self, trainer: Trainer, pl_module: Any, folder: Path, kept: int) -> None:
        self.metrics.check_finite(pl_module, trainer.global_step)
        with self.timer.within(CHECKPOINTS), self.signals.deferred():
            if trainer.is_global_zero:
                self.metrics.sync()
                folder.mkdir(exist_ok=True)
            trainer.save_checkpoint(folder / checkpoint_files.stem(trainer.global_step), weights_only=False)
            if trainer.is_global_zero:
                for old in checkpoint_files.newest_first(folder)[kept:]:
                    old.unlink()
