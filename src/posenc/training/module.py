"""The training step, the validation and the batches they are given."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from posenc.data.batches import Batches
from posenc.model import Transformer
from posenc.objectives.objective import UNSEEN, Objective
from posenc.training.accelerator import Hardware
from posenc.training.attention_probe import Heads
from posenc.training.checkpoints import refuse_foreign
from posenc.training.optim import Optimizer, build_optimizer
from posenc.training.schedule import Schedule
from posenc.training.step import clip_gradients
from posenc.training.timing import COMPILING, WAITING, Phases


class LanguageModelling(LightningModule):
    """One model, one objective, one stream of batches.

    Args:
        model: what is trained.
        objective: what it predicts.
        optim, schedule: how it is updated.
        batches: what it reads; batch k belongs to step k, also after a resume.
        validation: what it is validated on: inputs and targets, (windows, T) each.
        heads: what is measured in its attention, beside the loss.
        steps: updates.
        configuration: kept in every checkpoint, as plain data.
        phases: told when it compiles or waits for a batch.
        hardware: compiles the loss, or not.
    """

    def __init__(
        self,
        model: Transformer,
        objective: Objective,
        optim: Optimizer,
        schedule: Schedule,
        batches: Batches,
        validation: tuple[Tensor, Tensor],
        heads: Heads,
        steps: int,
        configuration: Mapping[str, Any],
        phases: Phases,
        hardware: Hardware,
    ) -> None:
        super().__init__()
        self.model, self.objective, self.optim, self.schedule = model, objective, optim, schedule
        self.batches, self.heads, self.steps = batches, heads, steps
        self.validation = validation
        self.context = validation[1].shape[1]
        self.validated = int((validation[1] != UNSEEN).sum())
        self.configuration = dict(configuration)
        self.gradient_norm = torch.zeros(())
        self.phases, self.hardware = phases, hardware

    def configure_model(self) -> None:
        self.loss_of = self.hardware.loss(self.model, self.trainer.strategy.root_device)

    def on_train_start(self) -> None:
        """Compile before the first step, so that no step's time has it in it."""
        if not self.hardware.compiles():
            return
        with self.phases.within(COMPILING):
            train = [part.to(self.device) for part in next(self._shares(self.batches, 0))]
            valid = [part.to(self.device) for part in next(self._validation_batches())[:2]]
            for _ in range(3 if self.hardware.cuda_graphs else 1):  # a CUDA graph is recorded at the second call
                with self.trainer.precision_plugin.forward_context():
                    self.training_step(train, 0).backward()
                    with torch.no_grad():
                        self.loss_of(*valid).item()
                self.zero_grad()

    def training_step(self, batch: Sequence[Tensor], _: int) -> Tensor:
        """Windows and their noise, as in `Batches` -> mean loss in nats per predicted token.

        With several devices it is that of this one's windows: all have as many tokens to predict, so that the mean over
        devices is the mean over the batch, and the mean of gradients its gradient.
        """
        self.model.scheme.at_step(self.trainer.global_step)
        return self.loss_of(*self.objective.inputs_and_targets(*batch))

    @torch.no_grad()
    def validate(self, called_away: Callable[[], bool]) -> float | None:
        """Mean loss in nats per predicted token over all validation windows; None if it was called away before."""
        self.model.scheme.at_step(self.trainer.global_step)
        total = torch.zeros((), device=self.device)
        for inputs, targets, share in self._validation_batches():
            if called_away():
                return None
            with self.trainer.precision_plugin.forward_context():
                total += self.loss_of(inputs.to(self.device), targets.to(self.device)) * share
        return self.trainer.strategy.reduce(total, reduce_op="sum").item()

    def _validation_batches(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Inputs and targets, (size, T) each, and their share of all predicted tokens; several devices take turns.

        The size is the training's if the windows can be cut like that, or near it, so that one compiled graph serves
        all. Each device has as many batches: those whose turn comes after the last get one that does not count.
        """
        inputs, targets = self.validation
        world, rank = self.trainer.world_size, self.trainer.global_rank
        largest = self.batches.batch_size // world
        even = [size for size in range((largest + 1) // 2, largest + 1) if len(inputs) % size == 0]
        size = max(even, default=largest)
        batches = list(zip(inputs.split(size), targets.split(size), strict=True))
        for turn in range(rank, math.ceil(len(batches) / world) * world, world):
            seen, wanted = batches[turn % len(batches)]
            share = int((wanted != UNSEEN).sum()) / self.validated
            yield seen, wanted, share if turn < len(batches) else 0.0

    def learning_rate(self, step: int) -> float:
        """The one that led to `step` updates."""
        return self.optim.lr * self.schedule.lr_factor(step - 1, self.steps)

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = build_optimizer(self.model, self.optim, self.schedule, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self.gradient_norm = clip_gradients(self.model, self.optim.clip)

    def train_dataloader(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Lightning asks after it has restored the step, so a resumed run goes on with the batch it would have had.
        return self._timed(self._shares(self.batches.on(self.device), self.trainer.global_step))

    def _shares(self, batches: Batches, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This device's of every batch from `first` on."""
        return batches.stream(first, self.steps, self.trainer.global_rank, self.trainer.world_size)

    def _timed(self, stream: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            with self.phases.within(WAITING):
                batch = next(stream, None)
            if batch is None:
                return
            yield batch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["configuration"] = self.configuration

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        refuse_foreign(checkpoint, self.configuration)
