"""The rows of metrics.csv and attention.csv."""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from posenc.config.schema import Settings
from posenc.errors import RunError, UserError
from posenc.storage import checkpoint_files
from posenc.storage.csv_files import MetricsFile, intact_rows
from posenc.storage.metrics import COLUMNS
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.logger import Logger
from posenc.training.attention_probe import PROBE_COLUMNS, AttentionProbe
from posenc.training.efficiency import flops_per_token, peak_flops
from posenc.training.signals import Signals
from posenc.training.timer import LOGGING, LOOP, PROBE, TRAINING, VALIDATION, Timer
from posenc.training.validation import validate

Row = dict[str, Any]


class MetricsWriter(Callback):
    """Writes metrics.csv and passes its rows to the logger; every `attention_every` steps also writes attention.csv.

    A row that is not yet written is saved in the checkpoint as pending, since a run may be stopped at any step.

    Attributes:
        seconds: training time so far, without validation, checkpoints and interruptions.
        row: the last row, written or pending.
        lowest: the lowest validation loss so far.
        peak_seconds_per_token: seconds that the devices need for a token at their peak; None if that is unknown.
        peak_seconds: the seconds that the devices would have needed at their peak; None if that is unknown of some.
        machines: each machine that the run has trained on (`run_directory.machine`), in order, without repetition.
        logger: set on rank 0 once the run directory is locked; ignores everything on other ranks.

    Args:
        signals: may postpone a validation until the run is resumed.
        show: called with each row as it is written.
    """

    def __init__(
        self,
        directory: RunDirectory,
        settings: Settings,
        probe: AttentionProbe,
        timer: Timer,
        signals: Signals,
        show: Callable[[Row], None],
    ) -> None:
        self.directory, self.settings, self.probe = directory, settings, probe
        self.tokens_per_step = settings.batch_size * settings.context
        self.timer, self.signals, self.show = timer, signals, show
        self.logger = Logger()
        self.peak_seconds_per_token: float | None = None
        self.peak_seconds: float | None = 0.0
        self.machines: list[str] = []
        self.seconds = 0.0
        self.row: Row = {}
        self.lowest = math.inf
        self._pending = False
        self._running_since: float | None = None
        self._seconds_at_row = 0.0
        self._losses: list[torch.Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self._seconds_now(),
            "peak_seconds": self.peak_seconds,
            "machines": self.machines,
            "row": self.row,
            "lowest": self.lowest,
            "pending": self._pending,
            "since_row": self._seconds_at_row,
            "losses": torch.stack(self._losses).tolist() if self._losses else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.row = state_dict["seconds"], state_dict["row"]
        self.lowest = state_dict.get("lowest", math.inf)  # this and the next two are missing in old checkpoints
        self.peak_seconds = state_dict.get("peak_seconds")
        self.machines = [*dict.fromkeys([*state_dict.get("machines", []), *self.machines])]
        self._pending, self._seconds_at_row = state_dict["pending"], state_dict["since_row"]
        self._losses = list(torch.tensor(state_dict["losses"]))
        if self.row:
            self._check_rows(self.row["step"] - (self.settings.log_every if self._pending else 0))

    def _check_rows(self, written: int) -> None:
        """Check that all rows up to the checkpoint exist."""
        for name, every in (("metrics.csv", self.settings.log_every), ("attention.csv", self.settings.attention_every)):
            file = self.directory.path / name
            expected = list(range(every, written + 1, every))
            steps = dict.fromkeys(int(row["step"]) for row in intact_rows(file))  # attention.csv has a row per head
            if [step for step in steps if step <= written] != expected:
                raise UserError(
                    f"{file} lacks rows up to step {written}, where the checkpoint resumes: "
                    "restore it (or that of the run of fork_from=), or delete "
                    f"{self.directory.path} to start from scratch"
                )

    def setup(self, trainer: Trainer, pl_module: Any, *_: Any, **__: Any) -> None:
        peak = peak_flops(trainer.strategy.root_device, str(trainer.precision))
        if peak is not None:  # here the model is not sharded yet
            flops = flops_per_token(pl_module.model, self.settings.context)
            self.peak_seconds_per_token = flops / (peak * trainer.world_size)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.signals.start_training(multi_rank=trainer.world_size > 1)  # before a pending validation
        if trainer.is_global_zero:
            written = trainer.global_step - (1 if self._pending else 0)  # that step's row is still pending
            self.file = MetricsFile(self.directory.path / "metrics.csv", COLUMNS, written)
            self.probe_file = MetricsFile(self.directory.path / "attention.csv", PROBE_COLUMNS, written)
        self._losses = [loss.to(pl_module.device) for loss in self._losses]
        self.timer.enter(LOOP)
        if self._pending:
            self._validate_and_write(trainer, pl_module)

    def on_train_batch_start(self, *_: Any) -> None:
        self.timer.enter(TRAINING)
        if self._running_since is None:
            self._running_since = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        loss, step = outputs["loss"], trainer.global_step
        self._losses.append(loss)
        if step % self.settings.log_every:
            if loss.device.type == "cpu":  # on a GPU, reading every loss would synchronise the device
                self._read_finite([loss], pl_module, step)
            self.timer.enter(LOOP)
            return
        self._measure_row(trainer, pl_module, step)  # synchronises the device, so that the time is correct
        self.signals.agree(trainer.strategy)
        self.timer.enter(LOOP)
        self._validate_and_write(trainer, pl_module)

    def check_finite(self, pl_module: Any, step: int) -> None:
        """Check the losses since the last row, up to this step, and the last gradient.

        Raises:
            RunError: if one of them is NaN or infinite, which must not be saved.
        """
        self._read_finite(self._losses, pl_module, step)

    def _read_finite(self, losses: Iterable[torch.Tensor], pl_module: Any, step: int) -> tuple[list[float], float]:
        """Losses up to this step and the last gradient norm, all finite. Synchronises the device once."""
        *values, norm = torch.stack([*losses, pl_module.gradient_norm]).tolist()
        for at, loss in enumerate(values, step - len(values) + 1):
            self._require_finite("loss", loss, at, pl_module)
        self._require_finite("gradient norm", norm, step, pl_module)
        return values, norm

    def _require_finite(self, what: str, value: float, step: int, pl_module: Any) -> None:
        if math.isfinite(value):
            return
        if pl_module.trainer.is_global_zero:
            self._record_divergence(step)
        saved = checkpoint_files.newest_first(self.directory.checkpoints)
        last = f"the last checkpoint is {saved[0].name}" if saved else "there is no checkpoint yet"
        advice = f"with a learning rate of {pl_module.learning_rate(step):.3g}: try a lower optim.lr"
        if what == "loss" and step == 1:
            advice = "before any update: a value of pos, intervention or model is too large"
        raise RunError(f"the {what} is {value} at step {step}, {advice}; {last} in {self.directory.path}")

    def _record_divergence(self, step: int) -> None:
        """Write a last row, so that reports count this run as diverged, not as unfinished; no run resumes from it."""
        tokens, seconds = step * self.tokens_per_step, round(self._seconds_now(), 3)
        row = {"step": step, "tokens": tokens, "seconds": seconds, "val_loss": math.nan}
        self.file.append([row])
        self.logger.log_metrics(row)

    def _measure_row(self, trainer: Trainer, pl_module: Any, step: int) -> None:
        mean_losses = trainer.strategy.reduce(torch.stack(self._losses), reduce_op="mean")
        losses, norm = self._read_finite(mean_losses, pl_module, step)
        self._losses = []
        self.seconds, self._running_since = self._seconds_now(), None
        tokens = self.settings.log_every * self.tokens_per_step
        speed = tokens / (self.seconds - self._seconds_at_row)
        self._seconds_at_row = self.seconds
        self.row = {
            "step": step,
            "tokens": step * self.tokens_per_step,
            "seconds": round(self.seconds, 3),
            "train_loss": sum(losses) / self.settings.log_every,
            "learning_rate": pl_module.learning_rate(step),
            "gradient_norm": norm,
            "tokens_per_s": round(speed),
        }
        if self.peak_seconds_per_token is None:
            self.peak_seconds = None
        else:
            self.row["mfu"] = round(speed * self.peak_seconds_per_token, 4)
            if self.peak_seconds is not None:
                self.peak_seconds += tokens * self.peak_seconds_per_token
        self._pending = True

    def _validate_and_write(self, trainer: Trainer, pl_module: Any) -> None:
        """Validate if it is due, and write the row; both stay pending if the run is being stopped."""
        if self.row["step"] % self.settings.eval_every == 0:
            with self.timer.within(VALIDATION):
                measured = validate(trainer, pl_module, self.row["train_loss"], self._stopping)
            if measured is None:
                return
            self._require_finite("validation loss", measured["val_loss"], self.row["step"], pl_module)
            self.row |= measured
            self.lowest = min(self.lowest, measured["val_loss"])
            self._probe(trainer, pl_module)
        self._pending = False
        if trainer.is_global_zero:
            with self.timer.within(LOGGING):
                self.file.append([self.row])
                self.logger.log_metrics(self.row)
                self.show(self.row)

    def _stopping(self) -> bool:
        """Whether a signal postpones the validation; not after the last step, since no run resumes there."""
        return self.signals.asked is not None and self.row["step"] < self.settings.steps

    def _probe(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure the position encoding's share of the input and, if they are due, the attention heads."""
        due = self.row["step"] % self.settings.attention_every == 0
        with self.timer.within(PROBE), pl_module.hardware.unsharded(pl_module.loss, layers=due):
            self.row |= self.probe.position_share(pl_module.model)
            if not due:
                return
            with trainer.precision_plugin.forward_context():
                heads = self.probe.measure(pl_module.model)
        self.row["previous_token"] = max(head["1"] for head in heads)
        self.row["induction"] = max(head["induction"] for head in heads)
        if trainer.is_global_zero:
            with self.timer.within(LOGGING):
                self.probe_file.append([{"step": self.row["step"], **head} for head in heads])

    def just_validated(self, step: int) -> bool:
        """Whether this step's row has been written, with a validation."""
        return step % self.settings.eval_every == 0 and not self._pending

    def sync(self) -> None:
        """Flush all rows to disk."""
        self.file.sync()
        self.probe_file.sync()

    def _seconds_now(self) -> float:
        return self.seconds + (0.0 if self._running_since is None else time.perf_counter() - self._running_since)
