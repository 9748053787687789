"""Optimisers, the same for every scheme. Their learning rate follows a schedule of its own."""

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
    """How a model is updated: a class here with a YAML in conf/optim."""

    @property
    def lr(self) -> float:
        """The peak of the learning rate; what metrics.csv shows is this times the schedule's factor."""
        ...

    @property
    def clip(self) -> float:
        """Largest norm of the gradient."""
        ...

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Torch's optimiser over all parameters of a model."""
        ...


@dataclass(frozen=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019).

    Args:
        lr: the peak of the learning rate.
        betas: decay of the two moments.
        weight_decay: on matrices only; not on the weights of norms.
        clip: largest norm of the gradient.
    """

    lr: Positive
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: NonNegative = 0.1
    clip: Positive = 1.0

    def build(self, model: nn.Module) -> torch.optim.AdamW:
        matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
        others = [weight for weight in model.parameters() if weight.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, betas=(self.betas[0], self.betas[1]), fused=True)


def build_optimizer(
    model: nn.Module, optim: Optimizer, schedule: Schedule, steps: int
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Torch's optimiser of a model, and its schedule over `steps` updates."""
    optimizer = optim.build(model)
    return optimizer, LambdaLR(optimizer, lambda step: schedule.lr_factor(step, steps))
