"""What happens beside the training step: the curve and the progress. Checkpoints are a file of their own."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from tqdm import tqdm

from posenc.errors import RunError, UserError
from posenc.storage import checkpoint_files
from posenc.storage.csv_files import MetricsFile, steps_in
from posenc.storage.metrics import COLUMNS
from posenc.storage.run_directory import RunDirectory
from posenc.training.attention_probe import HEAD_COLUMNS
from posenc.training.efficiency import flops_per_token, peak_flops
from posenc.training.signals import Signals
from posenc.training.timing import HEADS, LOGGING, LOOP, TRAINING, VALIDATION, Phases

Row = dict[str, Any]


class Curve(Callback):
    """Writes metrics.csv, and the same rows to every logger; after a validation also attention.csv, a row a head.

    What is begun and not yet written at some step goes into the checkpoint: a run may be stopped at any of them.

    Attributes:
        seconds: spent training so far: validation, checkpoints and interruptions are left out.
        row: the last row, written or pending.
        share_of_peak: of the devices' peak that one token a second uses (model FLOPs utilisation); None where the
            peak is not known.

    Args:
        directory: the run's.
        every: steps between rows.
        validate_every: steps between validations.
        heads_every: steps between looks at the attention heads.
        tokens_per_step: over all devices.
        phases: told what the run is doing.
        signals: which may ask to leave a validation for the next start.
        listeners: called with each row as it is written.
    """

    def __init__(
        self,
        directory: RunDirectory,
        every: int,
        validate_every: int,
        heads_every: int,
        tokens_per_step: int,
        phases: Phases,
        signals: Signals,
        listeners: list[Callable[[Row], None]],
    ) -> None:
        self.directory, self.every, self.validate_every = directory, every, validate_every
        self.heads_every = heads_every
        self.tokens_per_step = tokens_per_step
        self.phases, self.signals, self.listeners = phases, signals, listeners
        self.share_of_peak: float | None = None
        self.seconds = 0.0
        self.row: Row = {}
        self._pending = False
        self._resumed: float | None = None
        self._since_row = 0.0
        self._losses: list[torch.Tensor | float] = []

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self._seconds_now(),
            "row": self.row,
            "pending": self._pending,
            "since_row": self._since_row,
            "losses": [float(loss) for loss in self._losses],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.row = state_dict["seconds"], state_dict["row"]
        self._pending = state_dict.get("pending", False)  # those of earlier versions end with a row
        self._since_row = state_dict.get("since_row", self.seconds)
        self._losses = list(state_dict.get("losses", []))
        if self.row:
            self._refuse_holes(self.row["step"] - (self.every if self._pending else 0))

    def _refuse_holes(self, written: int) -> None:
        """Refuse to go on from a checkpoint whose rows are not all there.

        Raises:
            UserError: naming the file.
        """
        for name, every in (("metrics.csv", self.every), ("attention.csv", self.heads_every)):
            file = self.directory.path / name
            wanted = list(range(every, written + 1, every))
            if [step for step in steps_in(file) if step <= written] != wanted:
                raise UserError(
                    f"{file} does not have every row up to step {written}, from which its checkpoint goes on: "
                    f"put it back, or delete {self.directory.path} to begin anew"
                )

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        peak = peak_flops(trainer.strategy.root_device, str(trainer.precision))
        if peak is not None:  # the model has not been shared out yet
            self.share_of_peak = flops_per_token(pl_module.model, pl_module.context) / (peak * trainer.world_size)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.signals.training(several=trainer.world_size > 1)
        if trainer.is_global_zero:
            written = trainer.global_step - self._pending
            self.file = MetricsFile(self.directory.path / "metrics.csv", COLUMNS, written)
            self.heads_file = MetricsFile(self.directory.path / "attention.csv", ("step", *HEAD_COLUMNS), written)
        self.phases.enter(LOOP)
        if self._pending:
            self._complete(trainer, pl_module)

    def on_train_batch_start(self, *_: Any) -> None:
        self.phases.enter(TRAINING)
        if self._resumed is None:
            self._resumed = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        loss, step = outputs["loss"].detach().clone(), trainer.global_step
        self._losses.append(loss)
        if loss.device.type == "cpu":  # elsewhere a look at every loss would hold up the device
            self.refuse_lost(pl_module, step)
        if step % self.every == 0:
            self._finish_row(trainer, pl_module, step)  # waits for the device, so that the clock is right
            self.signals.agree(lambda signum: largest(signum, trainer))
            self.phases.enter(LOOP)
            self._complete(trainer, pl_module)
        else:
            self.phases.enter(LOOP)

    def _finish_row(self, trainer: Trainer, pl_module: Any, step: int) -> None:
        losses = torch.tensor(self.refuse_lost(pl_module, step), device=pl_module.device)
        over_all_devices = trainer.strategy.reduce(losses, reduce_op="mean").tolist()
        self._losses = []
        self.seconds, self._resumed = self._seconds_now(), None
        speed = self.every * self.tokens_per_step / (self.seconds - self._since_row)
        self._since_row = self.seconds
        self.row = {
            "step": step,
            "tokens": step * self.tokens_per_step,
            "seconds": round(self.seconds, 3),
            "train_loss": sum(over_all_devices) / self.every,
            "learning_rate": pl_module.learning_rate(step),
            "gradient_norm": float(pl_module.gradient_norm),
            "tokens_per_s": round(speed),
        }
        if self.share_of_peak is not None:
            self.row["mfu"] = round(speed * self.share_of_peak, 4)
        self._pending = True

    def refuse_lost(self, pl_module: Any, step: int) -> list[float]:
        """The losses since the last row, up to this step.

        Raises:
            RunError: if one of them, or the last gradient, is no finite number: nothing of it is to be saved.
        """
        losses = [float(loss) for loss in self._losses]
        first = step - len(losses) + 1
        wrong = [(first + place, "loss", loss) for place, loss in enumerate(losses) if not math.isfinite(loss)]
        if not wrong and not math.isfinite(norm := float(pl_module.gradient_norm)):
            wrong = [(step, "gradient's norm", norm)]
        if wrong:
            at, what, value = wrong[0]
            kept = checkpoint_files.newest_first(self.directory.checkpoints)
            stays = f"{kept[0].name} stays" if kept else "there is no checkpoint yet"
            raise RunError(
                f"the {what} is {value} at step {at}, where the learning rate was {pl_module.learning_rate(at):.3g}: "
                f"try a lower optim.lr; {stays} in {self.directory.path}"
            )
        return losses

    def _complete(self, trainer: Trainer, pl_module: Any) -> None:
        """Validate if it is time, and write the row; both stay pending if the run is to stop before its end."""
        step = self.row["step"]
        if step % self.validate_every == 0:
            with self.phases.within(VALIDATION):
                loss = pl_module.validate(lambda: self._called_away(pl_module, step))
            if loss is None:
                return
            self.row["val_loss"] = loss
            with self.phases.within(HEADS), pl_module.hardware.gathered(pl_module.loss_of):
                self.row |= pl_module.heads.position_share(pl_module.model)
            if step % self.heads_every == 0:
                self._measure_heads(trainer, pl_module)
        self._pending = False
        if trainer.is_global_zero:
            self._append(self.file, [self.row])
            with self.phases.within(LOGGING):
                for logger in trainer.loggers:
                    logger.log_metrics(self.row, step=step)
                for listener in self.listeners:
                    listener(self.row)

    def _called_away(self, pl_module: Any, step: int) -> bool:
        """Whether a validation is to be left for the next start; there is none after the last step."""
        return self.signals.asked is not None and step < pl_module.steps

    def _measure_heads(self, trainer: Trainer, pl_module: Any) -> None:
        model = pl_module.model
        with (
            self.phases.within(HEADS),
            trainer.precision_plugin.forward_context(),
            pl_module.hardware.gathered(pl_module.loss_of),
        ):
            heads = pl_module.heads.measure(model)
        self.row["previous_token"] = max(head["1"] for head in heads)
        self.row["induction"] = max(head["induction"] for head in heads)
        if trainer.is_global_zero:
            self._append(self.heads_file, [{"step": self.row["step"], **head} for head in heads])

    def just_validated(self, step: int) -> bool:
        """Whether this step's row is on disk, with a validation."""
        return step % self.validate_every == 0 and not self._pending

    def sync(self) -> None:
        """Have every row on disk."""
        self.file.sync()
        self.heads_file.sync()

    def _seconds_now(self) -> float:
        return self.seconds + (0.0 if self._resumed is None else time.perf_counter() - self._resumed)

    def _append(self, file: MetricsFile, rows: list[Row]) -> None:
        with self.phases.within(LOGGING):
            file.append(rows)


def largest(number: int, trainer: Trainer) -> int:
    """Of the numbers that all ranks give."""
    strategy = trainer.strategy
    return int(strategy.reduce(torch.tensor(number, device=strategy.root_device), reduce_op="max"))


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
            with suppress(OSError):  # a reader that has gone, or a log on a full disk, is no reason to stop
                print(f"{step}  {losses}  {speed}  {left:.0f} s left", flush=True)

    def on_exception(self, *_: Any) -> None:
        self.teardown()  # so that what is said next begins a line

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
