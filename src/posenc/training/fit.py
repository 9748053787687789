"""One run from its prepared text to its summary."""

import math
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from posenc.config.instantiate import build
from posenc.config.schema import Settings
from posenc.config.secrets import presentable
from posenc.data.prepare import Prepared
from posenc.distributed import broadcast, this_rank
from posenc.errors import UserError
from posenc.objectives.objective import Sampling
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_write
from posenc.storage.run_directory import RunDirectory, machine
from posenc.training import environment
from posenc.training.accelerator import Hardware, compiler_errors
from posenc.training.attention_probe import AttentionProbe
from posenc.training.checkpoint_callback import Checkpoint
from posenc.training.efficiency import peak_memory, reset_peak_memory
from posenc.training.experiment import Experiment
from posenc.training.fork import Fork
from posenc.training.metrics_writer import MetricsWriter
from posenc.training.module import LanguageModel
from posenc.training.progress_bar import ProgressBar
from posenc.training.signals import Signals
from posenc.training.timer import Timer
from posenc.training.trainer import build_trainer


class TrainingRun:
    """A run that is ready to start; nothing has been written yet.

    Raises:
        UserError: if `fork_from` is not a run to begin from.
    """

    def __init__(
        self,
        experiment: Experiment,
        prepared: Prepared,
        settings: Settings,
        directory: RunDirectory,
        hardware: Hardware,
        signals: Signals,
        timer: Timer,
    ) -> None:
        self.experiment, self.prepared, self.settings = experiment, prepared, settings
        self.directory, self.timer = directory, timer
        self.commit = environment.commit()  # before the training: the repository may move on meanwhile
        self.fork = None
        if settings.fork_from and this_rank().is_zero and checkpoint_files.newest(directory.checkpoints)[0] is None:
            self.fork = Fork.of(Path(settings.fork_from), experiment)
        windows, self.validation = experiment.validation(prepared)
        bar = ProgressBar(f"{directory.scheme}, seed {settings.seed}", settings.steps)
        probe = AttentionProbe(windows, settings.context)
        self.metrics = MetricsWriter(directory, settings, probe, timer, signals, bar.show)
        checkpoint = Checkpoint(directory, settings.checkpoint_seconds, self.metrics, signals, timer)
        self.parameters = sum(weight.numel() for weight in experiment.model.parameters())
        self.trainer = build_trainer(hardware, directory, settings.steps, [self.metrics, checkpoint, bar])
        self.module = LanguageModel(experiment, experiment.batches(prepared), self.validation, hardware, timer)
        self.machine = {
            "hardware": environment.device_name(self.device),
            "devices": self.trainer.world_size,
            "compiled": hardware.compiles(),
        }
        self.metrics.machines.append(machine(self.machine))

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self.trainer.strategy.root_device

    def train(self) -> dict[str, Any] | None:
        """Train to the last step and write the summary; None if another process has done so in the meantime.

        Ranks other than 0 only train, and return their last row.

        Raises:
            UserError: if another process is training this run.
            RunError: if training fails.
            Stopped: after a signal.
        """
        if not this_rank().is_zero:
            if broadcast(self.directory.finished):
                return None
            self._fit()
            return self.metrics.row
        with self.directory.locked():
            if broadcast(self.directory.finished):
                return None
            self.experiment.tokenizer.check(self.directory.path)
            self.directory.create(self.experiment.config)
            self.experiment.tokenizer.save(self.directory.path)
            if self.fork and checkpoint_files.newest(self.directory.checkpoints)[0] is None:  # now under the lock
                self.fork.into(self.directory)
            self.fork = None  # its tensors are as large as the checkpoint
            try:
                config = self.experiment.config
                self.metrics.logger = build(config, "logger", directory=self.directory, config=config)
                reset_peak_memory(self.device)
                self._fit()
                summary = {**self._summary(), **self._quality()}
                self._finish(summary)
            except BaseException:
                with suppress(Exception):  # this error, not one of the logger's, is the reason
                    self.metrics.logger.close(failed=True)
                raise
        return summary

    def _fit(self) -> None:
        """Train, starting from the newest intact checkpoint if there is one."""
        checkpoint = broadcast(partial(_set_damaged_aside, self.directory))
        title = f"{self.directory.scheme}, seed {self.settings.seed}: {self.parameters / 1e6:.2f}M parameters"
        arithmetic = f"{self.trainer.precision} on {self.device.type}"
        print(f"{title}, {self.settings.steps} steps, {arithmetic}, in {self.directory.path}", flush=True)
        if len(self.validation[0]) < self.settings.eval_windows:
            print(
                f"Each validation has {len(self.validation[0])} windows, all that the validation split has.", flush=True
            )
        if checkpoint is not None:
            print(f"Resuming from {Path(checkpoint).name}.", flush=True)
        try:
            with compiler_errors():
                self.trainer.fit(self.module, ckpt_path=checkpoint)
        except RuntimeError as error:
            if "loading state_dict" not in str(error):
                raise
            raise UserError(
                f"{checkpoint} does not match the model, whose code has changed: use another name=, or delete "
                f"{self.directory.path} to start from scratch"
            ) from error

    def _summary(self) -> dict[str, Any]:
        """Result, resources and provenance."""
        row = self.metrics.row
        at_peak, machines = self.metrics.peak_seconds, self.metrics.machines
        return {
            "pos": self.directory.scheme,
            "seed": self.settings.seed,
            "fork_from": self.module.configuration.get("fork_from"),
            "steps": self.trainer.global_step,
            "tokens": row["tokens"],
            "parameters": self.parameters,
            **{name: row[name] for name in ("val_loss", "val_loss_se", "seconds") if name in row},
            "tokens_per_s": round(row["tokens"] / row["seconds"]),
            **({} if at_peak is None else {"mfu": at_peak / row["seconds"]}),
            **self.machine,
            **({"machines": machines} if len(machines) > 1 else {}),
            "peak_memory": peak_memory(self.device),
            "time": {phase: round(seconds, 3) for phase, seconds in self.timer.spent().items()},
            "precision": str(self.trainer.precision),
            "versions": environment.versions(),
            "commit": self.commit,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _quality(self) -> dict[str, Any]:
        """The n-gram baseline and, if the loss is a likelihood, bits per byte."""
        objective = self.experiment.objective
        quality = dict(objective.ngram_baseline(self.prepared.train.ids, self.validation))
        if objective.likelihood:
            lengths = self.experiment.tokenizer.byte_lengths()[self.validation[1].numpy()]
            quality["bits_per_byte"] = self.metrics.row["val_loss"] / math.log(2) / lengths.mean().item()
        return quality

    def _finish(self, summary: dict[str, Any]) -> None:
        """Write a sample, then the summary, which marks the run as finished."""
        objective, tokenizer, context = self.experiment.objective, self.experiment.tokenizer, self.settings.context
        model = self.module.hardware.full_model(self.module.model, self.directory.path).to(self.device)
        sample = objective.sample(model, tokenizer, objective.prompt, context, Sampling())
        atomic_write(self.directory.path / "sample.txt", sample + "\n")
        self.directory.finish(summary)  # before W&B, which may wait for the network
        try:
            self.metrics.logger.finish(sample, summary)
            self.metrics.logger.close(failed=False)
        except Exception as error:  # the result is on disk, so an error of a logger must not fail the run
            print(presentable(f"A logger failed at the end of this run: {error}"), file=sys.stderr)


def _set_damaged_aside(directory: RunDirectory) -> str | None:
    """The newest intact checkpoint, or None; newer ones that are damaged are renamed, with a warning."""
    newest, damaged = checkpoint_files.newest(directory.checkpoints)
    for file in damaged:
        aside = file.rename(f"{file}.damaged")
        instead = f"using the previous one, {newest.name}" if newest else "starting from scratch"
        print(f"{aside} is damaged (its checksum does not match); {instead}.", file=sys.stderr, flush=True)
    return None if newest is None else str(newest)
