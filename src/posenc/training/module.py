"""The LightningModule."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from posenc.data.batches import Batches
from posenc.objectives.objective import IGNORE_INDEX
from posenc.training.accelerator import Hardware
from posenc.training.checkpoint_io import check_configuration
from posenc.training.experiment import Experiment
from posenc.training.optim import build_optimizer
from posenc.training.step import clip_gradients
from posenc.training.timer import COMPILING, WAITING, Timer


class LanguageModel(LightningModule):
    """Steps, batches and optimiser of a run.

    Args:
        batches: batch k belongs to step k, also after a resume.
        validation: inputs and targets, (windows, T) each.
    """

    validation_inputs: Tensor
    validation_targets: Tensor

    def __init__(
        self,
        experiment: Experiment,
        batches: Batches,
        validation: tuple[Tensor, Tensor],
        hardware: Hardware,
        timer: Timer,
    ) -> None:
        super().__init__()
        self.model, self.objective = experiment.model, experiment.objective
        self.optim, self.schedule = experiment.optim, experiment.schedule
        self.configuration = dict(experiment.config)
        self.steps: int = experiment.config["steps"]
        self.batches, self.hardware, self.timer = batches, hardware, timer
        inputs, targets = validation
        self.predicted = (targets != IGNORE_INDEX).sum(-1)  # stays on the CPU: no validation waits for it
        # Buffers are copied to the device once, with the model.
        self.register_buffer("validation_inputs", inputs, persistent=False)
        self.register_buffer("validation_targets", targets, persistent=False)
        self.register_buffer("gradient_norm", torch.zeros(()), persistent=False)

    def configure_model(self) -> None:
        self.loss = self.hardware.loss(self.model)

    def training_step(self, batch: Sequence[Tensor], _: int) -> Tensor:
        """Windows and their noise, as in `Batches` -> mean loss in nats per predicted token.

        With several devices it is the mean over this device's windows. All devices have the same number of targets, so
        the mean over devices is the mean over the batch, and the averaged gradient is its gradient.
        """
        self.model.scheme.at_step(self.trainer.global_step)
        return self.loss(*self.objective.inputs_and_targets(*batch))

    def validation_loss(self, inputs: Tensor, targets: Tensor, share: float) -> Tensor:
        """A batch's contribution to the mean loss over all validation windows, in nats per predicted token."""
        self.model.scheme.at_step(self.trainer.global_step)
        return self.loss(inputs, targets) * share

    def configure_optimizers(self) -> Any:
        self.weights = list(self.model.parameters())  # searching the modules in each step is slower
        optimizer, scheduler = build_optimizer(self.model, self.optim, self.schedule, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        self.gradient_norm = clip_gradients(self.weights, self.optim.clip)

    def learning_rate(self, step: int) -> float:
        """The learning rate of update number `step`, from 1."""
        return self.optim.lr * self.schedule.lr_factor(step - 1, self.steps)

    def train_dataloader(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Lightning calls this after restoring the step, so that a resumed run continues with the right batch.
        return self._timed(self._shares(self.batches.on(self.device), self.trainer.global_step))

    def _shares(self, batches: Batches, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of every batch from `first` on."""
        return batches.stream(first, self.steps, self.trainer.global_rank, self.trainer.world_size)

    def _timed(self, stream: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            with self.timer.within(WAITING):
                batch = next(stream, None)
            if batch is None:
                return
            yield batch

    def validation_batches(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Inputs and targets, (size, T) each, and their share of all targets, distributed round-robin over the ranks.

        The size is at most that of training, and divides the number of windows if possible, so that one compiled graph
        serves all. All ranks get the same number of batches, padded with batches of share 0.
        """
        world, rank = self.trainer.world_size, self.trainer.global_rank
        largest = self.batches.batch_size // world
        windows = len(self.predicted)
        divisors = [size for size in range((largest + 1) // 2, largest + 1) if windows % size == 0]
        size = max(divisors, default=largest)
        parts = (self.validation_inputs, self.validation_targets, self.predicted)
        batches = list(zip(*(part.split(size) for part in parts), strict=True))
        for index in range(rank, math.ceil(len(batches) / world) * world, world):
            inputs, targets, predicted = batches[index % len(batches)]
            share = int(predicted.sum()) / int(self.predicted.sum())
            yield inputs, targets, share if index < len(batches) else 0.0

    def on_train_start(self) -> None:
        """Compile before the first step, so that compilation is not part of a step's time.

        This goes through the strategy: inside DDP's forward, torch's DDPOptimizer splits the graph at gradient buckets,
        which lets the backward pass overlap with the all-reduce.
        """
        if not self.hardware.compiles():
            return
        with self.timer.within(COMPILING):
            train = [part.to(self.device) for part in next(self._shares(self.batches, 0))]
            valid = next(self.validation_batches())
            for _ in range(3 if self.hardware.cuda_graphs else 1):  # a CUDA graph is captured at the second call
                loss: Any = self.trainer.strategy.training_step(train, 0)
                loss.backward()
                with self.trainer.precision_plugin.forward_context(), torch.no_grad():
                    self.validation_loss(*valid).item()
                self.zero_grad()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["configuration"] = self.configuration

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_configuration(checkpoint, self.configuration)
        self.configuration["fork_from"] = checkpoint["configuration"].get("fork_from")  # where this run began
