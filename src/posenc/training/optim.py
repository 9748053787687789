"""Optimisers. The learning-rate schedule is separate."""

from dataclasses import dataclass
from typing import Annotated, Protocol

import torch
from annotated_types import Ge, Lt
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from posenc.bounds import NonNegative, Positive
from posenc.training.schedule import Schedule

Beta = Annotated[float, Ge(0), Lt(1)]


class Optimizer(Protocol):
    """The interface of the choices in conf/optim."""

    @property
    def lr(self) -> float:
        """Peak learning rate; metrics.csv has this times the schedule's factor."""
        ...

    @property
    def clip(self) -> float:
        """Maximum gradient norm."""
        ...

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The torch optimiser of all parameters of a model."""
        ...


@dataclass(frozen=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019), with weight decay on two-dimensional parameters only, as in nanoGPT.

    These are matrices and tables, of the position scheme too (learned, T5, FIRE, CoPE, FoX): not norm weights, biases,
    trained angles or amplitudes.
    """

    lr: Positive
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: NonNegative = 0.1
    clip: Positive = 1.0

    def build(self, model: nn.Module) -> torch.optim.AdamW:
        matrices = [weight for weight in model.parameters() if weight.ndim == 2]
        others = [weight for weight in model.parameters() if weight.ndim != 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, betas=(float(self.betas[0]), float(self.betas[1])), fused=True)


def build_optimizer(
    model: nn.Module, optim: Optimizer, schedule: Schedule, steps: int
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """The torch optimiser of a model, and its schedule over `steps` updates."""
    optimizer = optim.build(model)
    return optimizer, LambdaLR(optimizer, lambda step: schedule.lr_factor(step, steps))
