"""What happens beside the training step: the curve, the checkpoints, the progress."""

import os
import sys
import time
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from tqdm import tqdm

from posenc.directory import COLUMNS, MetricsFile, RunDirectory
from posenc.training.efficiency import flops_per_token, peak_flops
from posenc.training.heads import HEAD_COLUMNS
from posenc.training.phases import CHECKPOINTS, HEADS, LOGGING, LOOP, TRAINING, VALIDATION, Phases

Row = dict[str, Any]


class Curve(Callback):
    """Writes metrics.csv, and the same rows to every logger; after a validation also attention.csv, a row a head.

    Attributes:
        seconds: spent training so far: validation, checkpoints and interruptions are left out.
        share_of_peak: of the device's peak that one token a second uses (model FLOPs utilisation); None where the
            peak is not known.

    Args:
        directory: the run's.
        every: steps between rows.
        tokens_per_step: over all devices.
        phases: told what the run is doing.
        listeners: called with each row as it is written.
    """

    def __init__(
        self,
        directory: RunDirectory,
        every: int,
        tokens_per_step: int,
        phases: Phases,
        listeners: list[Callable[[Row], None]],
    ) -> None:
        self.directory, self.every, self.tokens_per_step = directory, every, tokens_per_step
        self.phases, self.listeners = phases, listeners
        self.share_of_peak: float | None = None
        self.seconds = 0.0
        self.row: Row = {}
        self._resumed: float | None = None
        self._since_row = 0.0
        self._loss: torch.Tensor | float = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "row": self.row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.row = state_dict["seconds"], state_dict["row"]

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        peak = peak_flops(pl_module.device, str(trainer.precision))
        if peak is not None:
            self.share_of_peak = flops_per_token(pl_module.model, pl_module.context) / peak
        resumed_at = trainer.global_step
        self.file = MetricsFile(self.directory.path / "metrics.csv", COLUMNS, resumed_at)
        self.heads_file = MetricsFile(self.directory.path / "attention.csv", ("step", *HEAD_COLUMNS), resumed_at)
        self._since_row = self.seconds
        self.phases.enter(LOOP)

    def on_train_batch_start(self, *_: Any) -> None:
        self.phases.enter(TRAINING)
        if self._resumed is None:
            self._resumed = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        self._loss = self._loss + outputs["loss"].detach()
        step = trainer.global_step
        if step % self.every:
            self.phases.enter(LOOP)
            return
        loss = float(self._loss) / self.every  # waits for the device, so that the clock is right
        self._stop_clock()
        self.phases.enter(LOOP)
        speed = self.every * self.tokens_per_step / (self.seconds - self._since_row)
        self.row = {
            "step": step,
            "tokens": step * self.tokens_per_step,
            "seconds": round(self.seconds, 3),
            "train_loss": loss,
            # The schedule has already moved on to the next step.
            "learning_rate": pl_module.optim.lr * pl_module.optim.share_of_peak(step - 1, pl_module.steps),
            "gradient_norm": float(pl_module.gradient_norm),
            "tokens_per_s": round(speed),
        }
        if self.share_of_peak is not None:
            self.row["mfu"] = round(speed * self.share_of_peak, 4)
        self._loss, self._since_row = 0.0, self.seconds
        if step % trainer.val_check_interval:
            self._publish(trainer)

    def on_validation_start(self, *_: Any) -> None:
        self.phases.enter(VALIDATION)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.row["val_loss"] = float(pl_module.validation_loss)
        self.phases.enter(LOOP)
        if self.row["step"] % pl_module.heads.every == 0:
            with self.phases.within(HEADS), trainer.precision_plugin.forward_context():
                heads = pl_module.heads.measure(pl_module.model)
            self.row["previous_token"] = max(head["1"] for head in heads)
            self.row["induction"] = max(head["induction"] for head in heads)
            self._append(trainer, self.heads_file, [{"step": self.row["step"], **head} for head in heads])
        self._publish(trainer)

    def _stop_clock(self) -> None:
        assert self._resumed is not None
        self.seconds += time.perf_counter() - self._resumed
        self._resumed = None

    def _append(self, trainer: Trainer, file: MetricsFile, rows: list[Row]) -> None:
        if trainer.is_global_zero:
            with self.phases.within(LOGGING):
                file.append(rows)

    def _publish(self, trainer: Trainer) -> None:
        self._append(trainer, self.file, [self.row])
        if trainer.is_global_zero:
            with self.phases.within(LOGGING):
                for logger in trainer.loggers:
                    logger.log_metrics(self.row, step=self.row["step"])
                for listener in self.listeners:
                    listener(self.row)


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes beside the file and renames: a checkpoint is whole, or it is not there."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:  # noqa: ARG002
        partial = Path(f"{path}.partial")
        with partial.open("wb") as stream:
            torch.save(checkpoint, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)


class Checkpoints(Callback):
    """Saves after a validation, when enough time has passed, and at the end; keeps the last two.

    Just after a validation nothing is half done: every row up to this step is on disk and no loss is pending.
    This must come after `Curve` in the list of callbacks.

    Args:
        directory: the run's.
        seconds: least time between two checkpoints.
        phases: told what the run is doing.
    """

    def __init__(self, directory: RunDirectory, seconds: float, phases: Phases) -> None:
        self.folder, self.seconds, self.phases = directory.path / "checkpoints", seconds, phases
        self._saved = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        step = trainer.global_step
        if step < pl_module.steps and time.monotonic() - self._saved < self.seconds:
            return
        with self.phases.within(CHECKPOINTS):
            self._save(trainer, step)

    def _save(self, trainer: Trainer, step: int) -> None:
        trainer.save_checkpoint(self.folder / f"step-{step:09d}.ckpt", weights_only=False)
        self._saved = time.monotonic()
        if trainer.is_global_zero:
            for old in sorted(self.folder.glob("step-*.ckpt"))[:-2]:
                old.unlink()


class Progress(Callback):
    """A bar with loss, speed and time left on a terminal; a plain line a validation elsewhere.

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
            form = "{desc} {percentage:3.0f}% |{bar}| {n}/{total} [{elapsed}, {remaining} left]{postfix}"
            first = trainer.global_step
            self.bar = tqdm(desc=self.title, total=self.steps, initial=first, bar_format=form, dynamic_ncols=True)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.update()

    def show(self, row: Row) -> None:
        """Show a row of the curve."""
        if "val_loss" in row:
            self.validation = f", validation {row['val_loss']:.3f}"
        losses = f"loss {row['train_loss']:.3f}{self.validation}"
        speed = f"{row['tokens_per_s']:,} tokens/s"
        if self.bar is not None:
            self.bar.set_postfix_str(f"{losses}, {speed}")
        elif "val_loss" in row:
            left = (self.steps - row["step"]) * row["seconds"] / row["step"]
            step = f"{self.title}: step {row['step']:>6}/{self.steps}"  # the title, since runs may go on side by side
            print(f"{step}  {losses}  {speed}  {left:.0f} s left", flush=True)

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
