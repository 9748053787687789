"""What Lightning calls beside the step: checkpoints, the end at a signal, the progress bar.

`MetricsWriter`, in a file of its own, comes before them in the list of callbacks: what is due at a step is then on
disk, or pending in the checkpoint.
"""

import sys
import time
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from tqdm import tqdm

from posenc.storage import checkpoint_files
from posenc.storage.run_directory import RunDirectory
from posenc.tracking import loggers
from posenc.training.metrics_writer import MetricsWriter, Row, max_over_ranks
from posenc.training.signals import Signals
from posenc.training.timer import CHECKPOINTS, Timer


class Checkpoint(Callback):
    """Saves after validations when enough time has passed, and at the end; keeps the last two.

    For a logger that asks for it, the one with the lowest validation loss is kept beside them.

    Args:
        directory: the run's.
        seconds: least time between two checkpoints.
        metrics: whose rows go with the checkpoint.
        signals: told that a checkpoint is being written.
        timer: told likewise.
    """

    def __init__(
        self, directory: RunDirectory, seconds: float, metrics: MetricsWriter, signals: Signals, timer: Timer
    ) -> None:
        self.folder, self.best, self.seconds = directory.checkpoints, directory.best, seconds
        self.metrics, self.signals, self.timer = metrics, signals, timer
        self._step, self._saved = -1, time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            for file in checkpoint_files.newest_first(self.best):
                if checkpoint_files.step(file) > trainer.global_step:  # will be trained again
                    file.unlink()
        if self.metrics.just_validated(trainer.global_step):  # an earlier session left this validation to us
            self._keep_best(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        last = trainer.global_step == pl_module.steps
        validated = self.metrics.just_validated(trainer.global_step)
        if last or (validated and self._due(trainer)):
            self.save(trainer, pl_module)
        if validated:
            self._keep_best(trainer, pl_module)

    def save(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the present step, unless it is saved; all ranks must call this.

        Raises:
            RunError: if the loss or the gradient is NaN or infinite.
        """
        if self._step != trainer.global_step:
            self._write(trainer, pl_module, self.folder, checkpoint_files.KEPT)
            self._step, self._saved = trainer.global_step, time.monotonic()

    def _keep_best(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the present step if its validation loss is the lowest so far, on rank 0, which has the loggers."""
        if trainer.strategy.broadcast(loggers.want_best(trainer.loggers) and self.metrics.lowest()):
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

    def _due(self, trainer: Trainer) -> bool:
        """Whether enough time has passed, on rank 0."""
        return trainer.strategy.broadcast(time.monotonic() - self._saved >= self.seconds)


class StopOnSignal(Callback):
    """Ends a run that a signal has asked to stop, once its step is saved."""

    def __init__(self, signals: Signals, checkpoint: Checkpoint) -> None:
        self.signals, self.checkpoint = signals, checkpoint

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if self.signals.asked is None:
            return
        self.checkpoint.save(trainer, pl_module)
        # Other ranks may see it a moment later.
        file = next(iter(checkpoint_files.newest_first(self.checkpoint.folder)), self.checkpoint.folder)
        step = f"step {trainer.global_step} of {pl_module.steps}"
        self.signals.stop(f"{step} is saved in {file}; the same command resumes from there")

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ARG002
        self.signals.agree(lambda signum: max_over_ranks(signum, trainer))
        self.signals.trained()


class ProgressBar(Callback):
    """A bar with loss, speed and time left on a terminal; a plain line at each validation elsewhere.

    Args:
        title: what the bar is called.
        steps: updates in all.
    """

    def __init__(self, title: str, steps: int) -> None:
        self.title, self.steps = title, steps
        self.bar: tqdm | None = None
        self.validation = ""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        if trainer.is_global_zero and sys.stderr.isatty() and parent_process() is None:
            form = "{desc} |{bar}| {n}/{total}, {remaining} left{postfix}"  # in 80 columns
            first = trainer.global_step
            self.bar = tqdm(desc=self.title, total=self.steps, initial=first, bar_format=form, dynamic_ncols=True)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.update()

    def show(self, row: Row) -> None:
        """Show a row of metrics.csv."""
        if "val_loss" in row:
            self.validation = f", val {row['val_loss']:.3f}"
        losses = f"loss {row['train_loss']:.3f}{self.validation}"
        speed = f"{row['tokens_per_s']:,} tokens/s"
        if self.bar is not None:
            self.bar.set_postfix_str(f"{losses}, {speed}")
        elif "val_loss" in row:
            left = (self.steps - row["step"]) * row["seconds"] / row["step"]
            step = f"{self.title}: step {row['step']}/{self.steps}"  # the title: several runs may share a terminal
            with suppress(OSError):  # a reader that has gone, or a log on a full disk, is no reason to stop
                print(f"{step}  {losses}  {speed}  {left:.0f} s left", flush=True)

    def on_exception(self, *_: Any) -> None:
        self.teardown()  # so that what is said next begins a line

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
