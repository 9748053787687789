"""Instantiates a configuration: model, optimiser, schedule, objective and batches."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.config.instantiate import build, build_model
from posenc.data.batches import Batches, validation_noise, validation_windows
from posenc.data.corpora import Corpus
from posenc.data.prepare import Prepared, prepare
from posenc.data.tokenizers import Tokenizer
from posenc.model import Transformer
from posenc.objectives.objective import Objective, loss_of
from posenc.training.accelerator import Hardware, keep_freed_memory
from posenc.training.optim import Optimizer
from posenc.training.schedule import Schedule
from posenc.training.step import TrainingStep


@dataclass(frozen=True)
class Experiment:
    """The hardware-independent part of a run. The model is on the CPU, with the initial weights of its seed."""

    config: Mapping[str, Any]
    optim: Optimizer
    schedule: Schedule
    tokenizer: Tokenizer
    objective: Objective
    model: Transformer

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Experiment":
        """From a configuration whose types have been checked."""
        optim, schedule, tokenizer = (build(config, group) for group in ("optim", "schedule", "tokenizer"))
        schedule.lr_factor(0, config["steps"])  # refuses a warm-up longer than the run
        objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
        return cls(config, optim, schedule, tokenizer, objective, build_model(config, objective))

    @property
    def window(self) -> int:
        """Tokens per window: the context, and the objective's lookahead."""
        return self.config["context"] + self.objective.lookahead

    def prepare(self, corpus: Corpus, name: str) -> Prepared:
        """The tokens of a corpus, from the cache or newly tokenised; `name` is its choice in conf/data."""
        return prepare(corpus, self.tokenizer, Path(self.config["cache"]), name, self.config["context"], self.window)

    def batches(self, prepared: Prepared) -> Batches:
        """The training batches; batch k belongs to step k."""
        seed, size = self.config["seed"], self.config["batch_size"]
        return Batches(prepared.train, seed, size, self.window, self.objective.noise_per_token)

    def validation(self, prepared: Prepared) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The fixed validation windows, (N, window), and their inputs and targets, (N, T) each."""
        windows = validation_windows(prepared.valid, self.config["eval_windows"], self.window)
        noise = validation_noise(prepared.valid, windows, self.objective.noise_per_token)
        return windows, self.objective.inputs_and_targets(windows, noise)

    def choose_compile(self, hardware: Hardware, ranks: int = 1) -> Hardware:
        """The hardware with compile="auto" resolved for this run."""
        tokens = self.config["batch_size"] * self.config["context"] // ranks
        weights = sum(one.numel() for name, one in self.model.named_parameters() if not name.startswith("scheme."))
        return hardware.choose_compile(self.config["steps"], tokens, len(self.model.blocks), weights)

    def training_step(
        self,
        hardware: Hardware,
        device: torch.device,
        phase: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> TrainingStep:
        """The same step as in training, on one device and without Lightning, compiled if the run would be.

        `phase` as in `TrainingStep`.
        """
        if device.type == "cpu":
            keep_freed_memory()
        model = self.model.to(device)
        compiled = self.choose_compile(hardware).compiled(lambda inputs, targets: loss_of(model, inputs, targets))

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            model.scheme.at_step(step.lr_scheduler.last_epoch)
            return compiled(inputs, targets)

        autocast = device.type if hardware.chosen_precision() == "bf16-mixed" else None
        step = TrainingStep(model, loss, self.optim, self.schedule, self.config["steps"], autocast, phase)
        return step
