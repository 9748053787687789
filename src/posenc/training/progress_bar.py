"""The progress of a run on the terminal."""

import sys
import time
from contextlib import suppress
from multiprocessing import parent_process
from typing import Any

from lightning.pytorch import Callback, Trainer
from tqdm import tqdm

from posenc.training.metrics_writer import Row


class ProgressBar(Callback):
    """A bar with loss, speed and time left on a terminal; otherwise a plain line per validation."""

    def __init__(self, title: str, steps: int) -> None:
        self.title, self.steps = title, steps
        self.bar: tqdm | None = None
        self.validation = ""
        self.started: float | None = None
        self.first = 0

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero and sys.stderr.isatty() and parent_process() is None:
            bar_format = "{desc} |{bar}| {n}/{total}, {remaining} left{postfix}"  # fits into 80 columns
            self.bar = tqdm(
                desc=self.title,
                total=self.steps,
                initial=trainer.global_step,
                bar_format=bar_format,
                dynamic_ncols=True,
            )

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if self.started is None:  # after compiling, which says nothing of the time left
            self.started, self.first = time.monotonic(), trainer.global_step
            if self.bar is not None:
                self.bar.unpause()

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
            step = f"{self.title}: step {row['step']}/{self.steps}"  # several runs may share a terminal
            with suppress(OSError):  # a broken pipe or a full disk must not stop the run
                print(f"{step}  {losses}  {speed}{self._left(row['step'])}", flush=True)

    def _left(self, step: int) -> str:
        """The time left, at the mean speed so far; empty before the first step of a resumed run."""
        if self.started is None:
            return ""
        return f"  {(self.steps - step) * (time.monotonic() - self.started) / (step - self.first):.0f} s left"

    def on_exception(self, *_: Any) -> None:
        self.teardown()  # so that the error message starts on a new line

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
